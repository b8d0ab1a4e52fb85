"""Workflows from files in WfFormat, the JSON in which the WfCommons project publishes real executions.

A file describes a workflow twice: `workflow.specification` says which task waits for which, from both ends of each
edge, and `workflow.execution` says how long each task took. `load` reads both into a frozen `Workflow`, whose tasks are
in an order in which they can run. This takes three steps, each a module:

- `document` checks names and types, and knows nothing of graphs.
- `checks` checks ids, edges, cycles and runtimes, and knows nothing of JSON.
- `loader` reads the file and builds the result.

All problems are reported at once, in one `WorkflowError`, because a file with one mistake usually has more. Nothing is
corrected or guessed: the loaded workflow is the one that its author wrote. Commands, files and machines, which WfFormat
also holds, are not read.

`workload` starts workflows as processes, for `recovery run` and the demo.
"""

from recovery.wfformat.document import VERSIONS
from recovery.wfformat.loader import Workflow, WorkflowTask, example_path, load

__all__ = ["VERSIONS", "Workflow", "WorkflowTask", "example_path", "load"]
