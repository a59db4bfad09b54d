"""The suite, against the control plane named on the command line."""

from conformance.suite import *  # noqa: F403
