"""Groups of real clients: members join, leave and die while records flow, and the broker dies too.

Three members share twelve partitions. One joins, one leaves, one is killed, the broker is killed and comes back; behind every step more
records come, and each must be read. What is committed at the end is all there is, as kafka-consumer-groups sees it.
"""

import collections
import concurrent.futures
import os
import re
import signal
import subprocess
import time

import install
import tools

PARTITIONS = 12
RECORDS = 3_000
# Members that are killed are missed soon.
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "1000"}
# What takes longer hangs, also where the machine is slow.
SECONDS = 900
STEP_SECONDS = 0.2


def members(context):
    """What runs one member of each client; broker, topic and group come behind the first list, settings behind those."""
    java = [context.tools.java(), "-Xmx256m", f"-Dlog4j2.configurationFile={os.path.join(install.TESTS, 'kafka', 'log4j2.xml')}", "-cp"]
    new = [*java, f"{context.tools.client_classes()}:{context.tools.kafka_jars()}", "walser.Member"]
    old = [*java, f"{context.tools.client_classes()}:{context.tools.old_client_jars()}", "walser.Member"]
    python = [context.tools.python(), "-B", os.path.join(install.CLIENTS, "python", "member.py")]
    timeouts = ["session.timeout.ms=6000", "heartbeat.interval.ms=1000"]
    assignor = "partition.assignment.strategy=org.apache.kafka.clients.consumer."
    context.tools.kcat()
    return {
        "java-4.4.0-range": (new, [*timeouts, f"{assignor}RangeAssignor"]),
        "java-4.4.0-cooperative": (new, [*timeouts, f"{assignor}CooperativeStickyAssignor"]),
        "java-4.4.0-consumer": (new, ["group.protocol=consumer"]),
        "java-2.1.0": (old, timeouts),
        "confluent-kafka": ([*python, "confluent-kafka"], timeouts),
        "confluent-kafka-consumer": ([*python, "confluent-kafka"], ["group.protocol=consumer"]),
        "kafka-python": ([*python, "kafka-python"], timeouts),
        "aiokafka": ([*python, "aiokafka"], timeouts),
        "franz-go": ([os.path.join(context.tools.go_clients(), "member")], []),
        "kafkajs": ([context.tools.node(), os.path.join(install.CLIENTS, "node", "member.js")], ["sessionTimeout=6000", "heartbeatInterval=1000"]),
        "kcat": (["kcat"], timeouts),
    }


class Member:
    def __init__(self, folder, number, command):
        self.output = os.path.join(folder, f"member-{number}")
        with open(self.output, "wb") as out, open(os.path.join(folder, "stderr"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log, cwd=folder)

    def records(self):
        """Whole lines only: the last may still be on its way."""
        with open(self.output, encoding="utf-8") as file:
            lines = file.read().split("\n")[:-1]
        return [tuple(map(int, match.groups())) for match in map(re.compile(r"r (\d+) (\d+)").fullmatch, lines) if match]

    def end(self, how):
        self.process.send_signal(how)
        return self.process.wait(SECONDS)


class Group:
    """One client's group, on a broker of its own."""

    def __init__(self, context, client, command, settings):
        self.context, self.client, self.command, self.settings = context, client, command, settings
        self.folder, self.members, self.written = context.path(f"groups-{client}"), [], 0
        self.broker = context.brokers.start_walser(f"walser-groups-{client}", SETTINGS)
        self.topic, self.name = f"groups-{client}", f"group-{client}"
        # It takes a record for read before it prints it, whatever the broker is.
        self.loses = client == "kcat"

    def walser(self, *arguments, given=None):
        command = [self.context.tools.walser(), *arguments, "-b", self.broker.address]
        subprocess.run(command, input=given, stdout=subprocess.DEVNULL, text=True, timeout=SECONDS, check=True)

    def join(self, count=1):
        for _ in range(count):
            arguments = [self.broker.address, self.topic, self.name, *self.settings]
            command = [*self.command, *arguments]
            if self.client == "kcat":
                options = [word for setting in self.settings for word in ("-X", setting)]
                command = ["kcat", "-b", self.broker.address, "-u", "-f", "r %p %o\\n", "-X", "auto.offset.reset=earliest", *options, "-G", self.name, self.topic]
            self.members.append(Member(self.folder, len(self.members), command))

    def write(self):
        """Some records more, over all partitions."""
        lines = "".join(f"{number}:{self.client}\n" for number in range(self.written, self.written + RECORDS))
        self.walser("produce", self.topic, "-K", ":", given=lines)
        self.written += RECORDS

    def wait_read(self, what):
        """Until every record has been read by somebody; offsets have no gaps, so their number tells."""
        deadline = time.monotonic() + SECONDS
        while True:
            seen = {record for member in self.members for record in member.records()}
            if len(seen) == self.written:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {len(seen)} of {self.written} records were read; see {self.folder}")
            time.sleep(STEP_SECONDS)

    def restart_broker(self):
        self.broker.process.kill()
        self.broker.process.wait()
        self.broker = self.context.brokers.start_walser(f"walser-groups-{self.client}", {**SETTINGS, "listeners": f"PLAINTEXT://{self.broker.address}"})
        if self.client == "kcat":
            # It ends when it has no broker.
            self.join(sum(member.process.wait(SECONDS) is not None for member in self.members[2:]))

    def step(self, what, event):
        """Something happens while records come."""
        if self.loses:
            event()
            self.write()
            return self.wait_read(what)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            writing = pool.submit(self.write)
            event()
            writing.result()
        return self.wait_read(what)

    def leave(self, member):
        code = member.end(signal.SIGTERM)
        if code not in (0, 128 + signal.SIGTERM):
            raise RuntimeError(f"the member that left exited with {code}")

    def run(self):
        self.walser("topic", "create", self.topic, "-p", str(PARTITIONS))
        self.step("three members", lambda: self.join(3))
        self.step("one joins", self.join)
        self.step("one leaves", lambda: self.leave(self.members[0]))
        self.step("one is killed", lambda: self.members[1].end(signal.SIGKILL))
        self.write()
        # Some of them have not been read yet.
        if self.loses:
            self.wait_read("before the broker is killed")
        self.restart_broker()
        self.wait_read("the broker is killed")
        self.step("the broker is back", lambda: None)
        counts = collections.Counter(record for member in self.members for record in member.records())
        print(f"     groups {self.client}: {sum(counts.values()) - len(counts)} of {self.written} records were read again", flush=True)
        for member in self.members:
            if member.process.poll() is None:
                self.leave(member)
        return self.committed()

    def committed(self):
        """Kafka's tool on what the group has; why that is not everything."""
        line = "\t".join(["", f"org.apache.kafka.tools.{tools.TOOL['consumer-groups']}", "--bootstrap-server", self.broker.address, "--describe", "--group", self.name])
        ((code, output),) = tools.run_tools(self.context, f"groups-{self.client}", [line])
        rows = [row.split() for row in output.splitlines() if row.startswith(self.name)]
        lags = [row[5] for row in rows]
        read = sum(int(row[3]) for row in rows if row[3].isdigit())
        if code == 0 and lags == ["0"] * PARTITIONS and read == self.written:
            return None
        return f"committed are {read} of {self.written}: {output[-2000:]!r}"

    def stop(self):
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()
        return self.broker.stop()


def share(context):
    for client, (command, settings) in members(context).items():
        began = time.monotonic()
        group = Group(context, client, command, settings)
        try:
            problem = group.run()
        except (RuntimeError, subprocess.SubprocessError) as error:
            problem = str(error)
        finally:
            code = group.stop()
        if problem is None and code != 0:
            problem = f"the broker exited with {code}"
        context.report.case(f"groups {client}", problem)
        print(f"     groups {client} took {time.monotonic() - began:.0f} s", flush=True)
