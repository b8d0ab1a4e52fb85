// Roles for MongoDB's users, as `recovery init --roles` makes them: for whoever gives no administrator's password to
// another program.
//
//     mongosh "mongodb://admin@HOST/?replicaSet=rs0&authSource=admin" roles.js
//
// The database is `recovery`, or what RECOVERY_DATABASE names. May be run again: it brings the roles up to date.
// Made by `python -m tests.docs.reference`; change recovery/store/roles.py instead.

const name = process.env.RECOVERY_DATABASE || 'recovery';
const roles = [
  ["recoveryReader", [
    {"collection": "", "actions": ["listCollections"]},
    {"collection": "actors", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "auditLog", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "census", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "decisions", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "graphs", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "interruptions", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "leftCounts", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "markers", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "operationRanges", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "operationResults", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "operations", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "orders", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "processTypes", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "processes", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "queues", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "savedOperations", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "savedSearches", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "scanners", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "schedules", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "tasks", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "workers", "actions": ["collStats", "find", "listIndexes"]},
  ]],
  ["recoveryClient", [
    {"collection": "actors", "actions": ["find"]},
    {"collection": "decisions", "actions": ["insert"]},
    {"collection": "graphs", "actions": ["insert"]},
    {"collection": "leftCounts", "actions": ["insert", "update"]},
    {"collection": "markers", "actions": ["find"]},
    {"collection": "processTypes", "actions": ["find"]},
    {"collection": "processes", "actions": ["find", "insert", "update"]},
    {"collection": "tasks", "actions": ["insert"]},
  ]],
  ["recoveryWorker", [
    {"collection": "", "actions": ["listCollections"]},
    {"collection": "actors", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "auditLog", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "census", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "decisions", "actions": ["bypassDocumentValidation", "collStats", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "graphs", "actions": ["bypassDocumentValidation", "collStats", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "interruptions", "actions": ["collStats", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "leftCounts", "actions": ["collStats", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "markers", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "operationRanges", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "operationResults", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "operations", "actions": ["bypassDocumentValidation", "collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "orders", "actions": ["collStats", "find", "insert", "listIndexes", "remove"]},
    {"collection": "processTypes", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "processes", "actions": ["bypassDocumentValidation", "collStats", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "queues", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "savedOperations", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "savedSearches", "actions": ["collStats", "find", "listIndexes"]},
    {"collection": "scanners", "actions": ["collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "schedules", "actions": ["bypassDocumentValidation", "collStats", "find", "insert", "listIndexes", "update"]},
    {"collection": "tasks", "actions": ["collStats", "find", "insert", "listIndexes", "remove"]},
    {"collection": "workers", "actions": ["collStats", "find", "insert", "listIndexes", "remove", "update"]},
  ]],
  ["recoveryOperator", [
    {"collection": "", "actions": ["listCollections"]},
    {"collection": "actors", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "auditLog", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "census", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "decisions", "actions": ["bypassDocumentValidation", "collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "graphs", "actions": ["bypassDocumentValidation", "collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "interruptions", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "leftCounts", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "markers", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "operationRanges", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "operationResults", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "operations", "actions": ["bypassDocumentValidation", "collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "orders", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove"]},
    {"collection": "processTypes", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "listIndexes", "update"]},
    {"collection": "processes", "actions": ["bypassDocumentValidation", "collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "queues", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "savedOperations", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "savedSearches", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "scanners", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "schedules", "actions": ["bypassDocumentValidation", "collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "tasks", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove"]},
    {"collection": "workers", "actions": ["collMod", "collStats", "createCollection", "createIndex", "find", "listIndexes", "update"]},
  ]],
];

const database = db.getSiblingDB(name);
for (const [role, rights] of roles) {
  const privileges = rights.map(({ collection, actions }) => ({ resource: { db: name, collection }, actions }));
  if (database.getRole(role)) {
    database.updateRole(role, { privileges, roles: [] });
  } else {
    database.createRole({ role, privileges, roles: [] });
  }
  print(`${name}.${role}`);
}
