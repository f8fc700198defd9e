"""Kinds of failures of a suite's samples: whose fault each is, and what becomes of the sample.

A failure of the agent is an answer, and is scored. A failure of the infrastructure is the run's: the attempt
is repeated, and nothing is said of the sample. An undecided failure says neither that the agent can do it
nor that it can't: the sample is neither 0 nor left out, so the coverage is below 100 % until it is mended.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """Whose a failure is."""

    AGENT = "agent"
    INFRASTRUCTURE = "infrastructure"
    UNDECIDED = "undecided"


class FailureKind(StrEnum):
    """Why an attempt did not end with a completed answer; the ledger keeps it for each attempt."""

    EMPTY = "empty"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    STOPPED = "stopped"
    DRIVER = "driver"
    HOST = "host"
    NODE = "node"
    PROVIDER = "provider"
    MODEL = "model"
    ENVIRONMENT = "environment"
    CONFINEMENT = "confinement"
    STALLED = "stalled"
    SOLVER = "solver"
    SCORER = "scorer"
    CRASH = "crash"

    @property
    def fault(self) -> Fault:
        """Whose it is."""
        return FAULTS[self]


FAULTS: Final = {
    FailureKind.EMPTY: Fault.AGENT,
    FailureKind.TIMEOUT: Fault.AGENT,
    FailureKind.BUDGET: Fault.AGENT,
    FailureKind.STOPPED: Fault.AGENT,
    FailureKind.DRIVER: Fault.INFRASTRUCTURE,
    FailureKind.HOST: Fault.INFRASTRUCTURE,
    FailureKind.NODE: Fault.INFRASTRUCTURE,
    FailureKind.PROVIDER: Fault.INFRASTRUCTURE,
    FailureKind.MODEL: Fault.INFRASTRUCTURE,
    FailureKind.ENVIRONMENT: Fault.INFRASTRUCTURE,
    FailureKind.CONFINEMENT: Fault.INFRASTRUCTURE,
    FailureKind.STALLED: Fault.INFRASTRUCTURE,
    FailureKind.SOLVER: Fault.UNDECIDED,
    FailureKind.SCORER: Fault.UNDECIDED,
    FailureKind.CRASH: Fault.UNDECIDED,
}

MEANINGS: Final = {
    FailureKind.EMPTY: "the model said nothing at the end",
    FailureKind.TIMEOUT: "the sample's working time, or its time by the clock on the wall, was used up",
    FailureKind.BUDGET: "the budget of its tree was used up",
    FailureKind.STOPPED: "Main ended without an answer: it refused, was cut off, or did not fit its schema",
    FailureKind.DRIVER: "the program that worked on it ended, or was taken for dead",
    FailureKind.HOST: "the process that ran one of its sessions was lost",
    FailureKind.NODE: "a node or its supervisor was lost, with all trees there",
    FailureKind.PROVIDER: "the provider did not answer, refused the key, or failed after all attempts",
    FailureKind.MODEL: "the provider does not have the model",
    FailureKind.ENVIRONMENT: "a package or a program that the suite needs is missing, or a disk is full",
    FailureKind.CONFINEMENT: "commands can't be confined on the machine where it ran",
    FailureKind.STALLED: "code that blocks the event loop, or a busy machine, took its time away",
    FailureKind.SOLVER: "the solver or `tree=` raised an error",
    FailureKind.SCORER: "a scorer raised an error",
    FailureKind.CRASH: "it was lost again and again although it ran alone",
}
