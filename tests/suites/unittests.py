#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the test modules of Python's own library that are named, and prints a verdict
a test, on lines of their own: whatever the tests themselves print."""
import sys
import unittest

if sys.argv[1:2] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()

from test import support

support.use_resources = []  # no tests that want the internet, or minutes


class Verdicts(unittest.TestResult):
    said = set()

    def say(self, verdict, test):
        if test.id() not in self.said:  # a failed clean-up may follow an error
            self.said.add(test.id())
            print(f"\n--- {verdict}: {test.id()}", flush=True)

    def addSuccess(self, test):
        self.say("PASS", test)

    def addExpectedFailure(self, test, err):
        self.say("PASS", test)

    def addSkip(self, test, reason):
        self.say("SKIP", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(self.failures[-1][1])
        self.say("FAIL", test)

    def addError(self, test, err):
        super().addError(test, err)
        print(self.errors[-1][1])
        self.say("FAIL", test)

    def addUnexpectedSuccess(self, test):
        self.say("FAIL", test)


unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:]).run(Verdicts())
