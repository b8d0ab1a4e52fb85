from __future__ import annotations

from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
