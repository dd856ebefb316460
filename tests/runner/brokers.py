"""Starts brokers on free ports: walser, and Apache Kafka as the oracle."""

import os
import re
import signal
import socket
import subprocess
import threading
import time

READY = re.compile(r"walser ready listeners=PLAINTEXT://(\S+?:\d+)")
# The client cases delete topics under running clients, which must not bring them back by asking for them.
SETTINGS = {"auto.create.topics.enable": "false"}
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
# What takes longer hangs, also where the machine is slow.
START_SECONDS, STOP_SECONDS = 300, 180

# A machine that stands still for a while must not cost Kafka's one broker its leaderships.
KAFKA_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1800000
"""


class Broker:
    def __init__(self, process, address, data):
        self.process, self.address, self.data = process, address, data

    def stop(self):
        """A clean stop; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    except OSError:
        return False


class Brokers:
    """Each kind is started once, when first asked for, and stopped at the end."""

    def __init__(self, tools, folder):
        self.tools, self.folder, self.running, self.lock = tools, folder, {}, threading.Lock()

    def once(self, name, start):
        with self.lock:
            if name not in self.running:
                self.running[name] = start()
            return self.running[name]

    def walser(self):
        return self.once("walser", lambda: self.start_walser("walser"))

    def kafka(self):
        return self.once("kafka", lambda: self.start_kafka("kafka"))

    def start_walser(self, name, settings=None):
        """Port 0, so that the broker picks a free one, and the ready line says which."""
        data = os.path.join(self.folder, name)
        os.makedirs(data, exist_ok=True)
        command = [self.tools.walser(), "start", "--data-dir", os.path.join(data, "data")]
        for key, value in {"listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS, **(settings or {})}.items():
            command += ["--set", f"{key}={value}"]
        log = open(os.path.join(data, "log"), "ab")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        killer = threading.Timer(START_SECONDS, process.kill)
        killer.start()
        ready = None
        for line in process.stdout:
            ready = READY.search(line)
            if ready:
                break
        killer.cancel()
        if ready is None:
            raise RuntimeError(f"walser did not become ready, exit code {process.wait()}; its log is {log.name}:\n{open(log.name, encoding='utf-8').read()[-2000:]}")
        return Broker(process, ready.group(1), os.path.join(data, "data"))

    def start_kafka(self, name, settings=None, prepare=None, data=None):
        """`prepare` gets the folder when it is formatted; `data` is a folder that another start has left."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        java, jars = self.tools.java(), self.tools.kafka_jars()
        log4j = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kafka", "log4j2.xml")
        # Somebody else may take a port between the look and the use of it.
        for attempt in range(3):
            port, controller = free_port(), free_port()
            home = data or os.path.join(folder, f"data-{attempt}")
            properties = os.path.join(folder, "server.properties")
            with open(properties, "w", encoding="utf-8") as file:
                file.write(KAFKA_SETTINGS.format(port=port, controller=controller, data=home))
                file.writelines(f"{key}={value}\n" for key, value in {**SETTINGS, **(settings or {})}.items())
            log = open(os.path.join(folder, "log"), "ab")
            base = [java, "-Xmx768m", f"-Dlog4j2.configurationFile={log4j}", "-cp", jars]
            # With eligible leader replicas (KIP-966) Kafka sets min.insync.replicas for the whole cluster, and never lets go of it.
            # walser does not have the feature, so neither has the oracle.
            command = [*base, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties, "--feature", "eligible.leader.replicas.version=0"]
            if data is None:
                subprocess.run(command, stdout=log, stderr=log, check=True)
                if prepare:
                    prepare(home)
            process = subprocess.Popen([*base, "kafka.Kafka", properties], stdout=log, stderr=log)
            deadline = time.monotonic() + START_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                if answers(f"127.0.0.1:{port}"):
                    return Broker(process, f"127.0.0.1:{port}", home)
                time.sleep(0.05)
            process.kill()
            process.wait()
        raise RuntimeError(f"Kafka did not start; its log is {folder}/log")

    def stop(self):
        with self.lock:
            for broker in self.running.values():
                broker.stop()
            self.running.clear()
