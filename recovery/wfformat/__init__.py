"""Workflows from files, in WfFormat: the JSON in which the WfCommons project publishes real executions.

A file tells a workflow twice: `workflow.specification` says which task waits for which, from both ends of
each edge, and `workflow.execution` says how long each task took. `load` reads both into one frozen
`Workflow`, whose tasks stand in an order in which they can run. That goes in three steps, each a module:
`document` looks at names and types and knows nothing of graphs, `checks` looks at ids, edges, cycles and
runtimes and knows nothing of JSON, `loader` reads the file and builds the result. All that is wrong is told
at once, in one `WorkflowError`, since a file with one mistake mostly has more. Nothing is mended or guessed:
the workflow that is loaded is the one that its author wrote. The commands, files and machines that WfFormat
also holds are not read.

`workload` starts workflows as processes, for `recovery run` and the demo.
"""

from recovery.wfformat.document import VERSIONS
from recovery.wfformat.loader import Workflow, WorkflowTask, example_path, load

__all__ = ["VERSIONS", "Workflow", "WorkflowTask", "example_path", "load"]
