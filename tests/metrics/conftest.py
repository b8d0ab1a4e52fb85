from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
