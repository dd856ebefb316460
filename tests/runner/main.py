"""Installs what the tests need, runs them, and ends with one line: N passed, N failed.

    tests/run                      unit tests, then real clients and tools against a broker started here
    tests/run --only NAME          one part; may be given more than once (tests/run --list names them)
    tests/run --broker HOST:PORT   the clients and tools against a broker that runs already, for example Apache Kafka
                                   with auto.create.topics.enable=false
    tests/run --long               longer versions of the parts that have one
"""

import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback

import brokers
import install
import suites


class Report:
    """Counts cases. A case that could not be run has failed."""

    def __init__(self):
        self.passed, self.failed, self.lock = 0, [], threading.Lock()

    def case(self, name, problem=None):
        with self.lock:
            if problem is None:
                self.passed += 1
                print(f"ok   {name}", flush=True)
            else:
                self.failed.append(f"{name}: {problem}")
                print(f"FAIL {name}: {problem}", flush=True)

    def many(self, name, passed, failed):
        with self.lock:
            self.passed += passed
            self.failed.extend([name] * failed)
            print(f"{'FAIL' if failed else 'ok  '} {name}: {passed} passed, {failed} failed, in this part", flush=True)


class Context:
    """What a part of the run may use: installed programs, brokers, a folder for its files."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.report = arguments, folder, Report()
        self.tools = install.Tools()
        self.brokers = brokers.Brokers(self.tools, folder)

    def broker(self):
        """Address of the broker under test."""
        return self.arguments.broker or self.brokers.walser().address

    def path(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path


def run_part(context, name, body):
    began = time.monotonic()
    try:
        body(context)
    except Exception as error:  # the other parts still have to run
        traceback.print_exc()
        context.report.case(name, f"could not be run: {error}")
    print(f"     {name} took {time.monotonic() - began:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="tests/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", metavar="HOST:PORT")
    parser.add_argument("--only", metavar="NAME", action="append", default=[])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--list", action="store_true", help="name the parts and stop")
    parser.add_argument("--keep", action="store_true", help="keep logs and data of a run that passed")
    arguments = parser.parse_args()
    alone, together = suites.parts(arguments)
    if arguments.list:
        print("\n".join([*alone, *together]))
        return 0
    unknown = set(arguments.only) - {*alone, *together}
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; tests/run --list names them")
    folder = tempfile.mkdtemp(prefix="walser-tests-")
    context = Context(arguments, folder)

    def wanted(parts):
        return {name: body for name, body in parts.items() if not arguments.only or name in arguments.only}

    try:
        for name, body in wanted(alone).items():
            run_part(context, name, body)
        # One core for the broker's work, one for the clients': more at once makes nothing faster.
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda part: run_part(context, *part), wanted(together).items()))
        suites.after(context)
    finally:
        context.brokers.stop()
    report = context.report
    if report.failed or arguments.keep:
        print(f"logs and data are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    for failure in report.failed:
        print(f"failed: {failure}")
    print(f"{report.passed} passed, {len(report.failed)} failed")
    return 1 if report.failed or report.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
