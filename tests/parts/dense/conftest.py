from tests.lua.conftest import store  # noqa: F401
from tests.lua.lib.conftest import run  # noqa: F401
