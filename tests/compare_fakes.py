"""Methods that misbehave, for the tests of comparisons; other processes import them from here."""

from __future__ import annotations

import os
import time

from threadpoolctl import threadpool_info

from diffputer.methods.contract import Facts, Method
from diffputer.methods.table import make_method


class Fake(Method):
    """Column means under another name, after doing what it is named after."""

    def __init__(self, name):
        super().__init__(Facts(name, what="A test.", source="The tests.", cannot="Be relied upon."))

    def fit(self, table, categorical, seed):
        return self

    def transform(self, table):
        raise NotImplementedError

    def fit_transform(self, table, categorical, seed):
        self.misbehave(table)
        return make_method("mean").fit_transform(table, categorical, seed)

    def misbehave(self, table):
        pass


class Raises(Fake):
    def misbehave(self, table):
        raise RuntimeError("this method has a fault")


class Crashes(Fake):
    def misbehave(self, table):
        os._exit(3)


class Leaves(Fake):
    def misbehave(self, table):
        raise SystemExit(0)


class Hangs(Fake):
    def misbehave(self, table):
        time.sleep(600)


class LeavesHoles(Fake):
    def fit_transform(self, table, categorical, seed):
        return table


class LosesRows(Fake):
    def fit_transform(self, table, categorical, seed):
        return table[:3]


class TellsItsSurroundings(Fake):
    """Fails with what it finds: how threads wait, and how many there are."""

    def misbehave(self, table):
        threads = max(pool["num_threads"] for pool in threadpool_info())
        raise RuntimeError(f"{os.environ.get('OMP_WAIT_POLICY')}, {threads}")


class Interrupts(Fake):
    def misbehave(self, table):
        raise KeyboardInterrupt


class Remembers(Fake):
    """Keeps what it was shown, and which cells it was not."""

    def __init__(self, name):
        super().__init__(name)
        self.seen, self.shown = [], []

    def misbehave(self, table):
        self.seen.append(table.isna().to_numpy())
        self.shown.append(table)
