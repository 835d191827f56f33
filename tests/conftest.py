"""What every test shares: the project's own pytest plugins and the hypothesis profiles.

Profiles are chosen with HYPOTHESIS_PROFILE: ``dev`` (the default) looks at 60 other examples in each run, ``ci``
at the same ones always, ``mutation`` at the same 20 without a database, ``fuzz`` at 10,000. None has a deadline: a
loaded machine is no fault in the code.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.plugins.conformance", "tests.plugins.backends", "tests.plugins.browser"]

settings.register_profile("dev", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("mutation", parent=settings.get_profile("ci"), max_examples=20, database=None)
settings.register_profile("fuzz", parent=settings.get_profile("dev"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
