"""Errors of Hive's replication, in the words in which Hive writes them, with the codes that they are to get.

Nothing here knows how errors are classified.
"""

from __future__ import annotations

TASK = "org.apache.hadoop.hive.ql.exec.repl.ReplLoadTask"
BOOTSTRAPPED = "Load path /dump/7 not valid as target database is bootstrapped from some other path : /dump/3."


def failed(number: int, text: str = "told") -> str:
    return f"Error while processing statement: FAILED: Execution Error, return code {number} from {TASK}. {text}"


def thrift(number: int, text: str) -> str:
    return (
        "TExecuteStatementResp(status=TStatus(statusCode=3, infoMessages=['*org.apache.hive.service.cli."
        f"HiveSQLException'], sqlState='42S02', errorCode={number}, errorMessage=\"{text}\"), operationHandle=None)"
    )


MESSAGES = [
    (failed(20018, "File is missing from both source and cm path."), 40018),
    (failed(20016, "Notification events are missing in the meta store."), 40016),
    (failed(20017, BOOTSTRAPPED), 40017),
    (failed(40007, BOOTSTRAPPED), 40017),  # its number in Hive 4
    (failed(20019), 40019),
    (failed(20020), 10020),
    (failed(20021), 10021),
    (failed(30047, "Replication file system operation retry expired."), 30045),
    ("org.apache.hadoop.hive.ql.metadata.HiveException: [Error 20018]: told", 40018),
    (thrift(20018, "told"), 40018),
    ("Error: told (state=08S01,code=20018)", 40018),
    ("Error 20020: Source of replication (repl.source.for) is not set in the database properties.", 10020),
    ("REPL_EVENTS_MISSING_IN_METASTORE", 40016),
    ("FAILED: SemanticException [Error 10001]: Line 1:14 Table not found 'orders'", 10001),
    (thrift(10001, "Line 1:14 Table not found 'orders'"), 10001),
    ("Error: Error while compiling statement: FAILED: told (state=42S02,code=10001)", 10001),
    ("FAILED: Error in semantic analysis: Line 1:14 Table not found orders", 10001),
    ("FAILED: SemanticException [Error 10072]: Database does not exist: sales", 10072),
    ("FAILED: SemanticException [Error 10029]: told", 10022),
    (failed(40000, "java.net.UnknownHostException: namenode-1"), 30101),
    (failed(1, "Call From h1/10.0.0.1 to h2:8020 failed on connection exception: told"), 30101),
    (failed(40000, "java.net.NoRouteToHostException: No route to host"), 30101),
    (failed(40000, "java.net.SocketTimeoutException: Read timed out"), 30104),
    (failed(40000, "RangerRestClientImpl: java.net.ConnectException: Connection refused"), 30101),
    (failed(40000, "Ranger admin at http://r:6080: java.net.ConnectException: Connection refused"), 30102),
    (failed(20017, "Failed to connect to ranger service. Error code 503."), 30102),
    (failed(20017, "Failed to connect to atlas service. Error code 503."), 30103),
    (failed(40000, "Connection refused (Connection refused) by Atlas at a:21000"), 30103),
    (failed(40016, "Authorization Failure while communicating to Ranger admin"), 40101),
    (failed(40000, "told"), 40000),
    (failed(2, "told"), 40000),  # of MapReduce: its job failed, and nobody knows why
]
"""(an error's text, its code)."""

PERMANENT = [
    *(20000, 20004, 20006, 20007, 20008, 20009, 20010, 20011, 20012, 20013, 20014, 20022, 20023),
    *(30005, 30007, 30009, 30011, 30012, 30014, 30019, 30020, 30021, 30022, 30023),
    *(30030, 30031, 30032, 30033, 30034, 30035, 30042, 30043),
]
"""Numbers below 40000 of errors that do not pass by themselves."""

TRANSIENT = [
    *(20001, 20002, 20003, 20015, 29999, 30000, 30001, 30002, 30003, 30004, 30010, 30015, 30017),
    *(30036, 30037, 30038, 30039, 30040, 30041, 30044, 30046, 30048, 30049, 30050),
]
"""Numbers of errors that pass by themselves."""
