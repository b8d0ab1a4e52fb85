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
    {"collection": "actors", "actions": ["find", "listIndexes"]},
    {"collection": "auditLog", "actions": ["find", "listIndexes"]},
    {"collection": "decisions", "actions": ["find", "listIndexes"]},
    {"collection": "graphs", "actions": ["find", "listIndexes"]},
    {"collection": "interruptions", "actions": ["find", "listIndexes"]},
    {"collection": "markers", "actions": ["find", "listIndexes"]},
    {"collection": "operationRanges", "actions": ["find", "listIndexes"]},
    {"collection": "operationResults", "actions": ["find", "listIndexes"]},
    {"collection": "operations", "actions": ["find", "listIndexes"]},
    {"collection": "processTypes", "actions": ["find", "listIndexes"]},
    {"collection": "processes", "actions": ["find", "listIndexes"]},
    {"collection": "queues", "actions": ["find", "listIndexes"]},
    {"collection": "savedSearches", "actions": ["find", "listIndexes"]},
    {"collection": "scanners", "actions": ["find", "listIndexes"]},
    {"collection": "schedules", "actions": ["find", "listIndexes"]},
    {"collection": "tasks", "actions": ["find", "listIndexes"]},
    {"collection": "workers", "actions": ["find", "listIndexes"]},
  ]],
  ["recoveryClient", [
    {"collection": "actors", "actions": ["find"]},
    {"collection": "decisions", "actions": ["insert"]},
    {"collection": "graphs", "actions": ["insert"]},
    {"collection": "markers", "actions": ["find"]},
    {"collection": "processTypes", "actions": ["find"]},
    {"collection": "processes", "actions": ["find", "insert", "update"]},
    {"collection": "tasks", "actions": ["insert"]},
  ]],
  ["recoveryWorker", [
    {"collection": "", "actions": ["listCollections"]},
    {"collection": "actors", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "auditLog", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "decisions", "actions": ["bypassDocumentValidation", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "graphs", "actions": ["bypassDocumentValidation", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "interruptions", "actions": ["find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "markers", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "operationRanges", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "operationResults", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "operations", "actions": ["bypassDocumentValidation", "find", "insert", "listIndexes", "update"]},
    {"collection": "processTypes", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "processes", "actions": ["bypassDocumentValidation", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "queues", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "savedSearches", "actions": ["find", "listIndexes"]},
    {"collection": "scanners", "actions": ["find", "insert", "listIndexes", "update"]},
    {"collection": "schedules", "actions": ["bypassDocumentValidation", "find", "insert", "listIndexes", "update"]},
    {"collection": "tasks", "actions": ["find", "insert", "listIndexes", "remove"]},
    {"collection": "workers", "actions": ["find", "insert", "listIndexes", "remove", "update"]},
  ]],
  ["recoveryOperator", [
    {"collection": "", "actions": ["listCollections"]},
    {"collection": "actors", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "auditLog", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "decisions", "actions": ["bypassDocumentValidation", "collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "graphs", "actions": ["bypassDocumentValidation", "collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "interruptions", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "markers", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "operationRanges", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "operationResults", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "operations", "actions": ["bypassDocumentValidation", "collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "processTypes", "actions": ["collMod", "createCollection", "createIndex", "find", "listIndexes", "update"]},
    {"collection": "processes", "actions": ["bypassDocumentValidation", "collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "queues", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "savedSearches", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "scanners", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "update"]},
    {"collection": "schedules", "actions": ["bypassDocumentValidation", "collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove", "update"]},
    {"collection": "tasks", "actions": ["collMod", "createCollection", "createIndex", "find", "insert", "listIndexes", "remove"]},
    {"collection": "workers", "actions": ["collMod", "createCollection", "createIndex", "find", "listIndexes"]},
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
