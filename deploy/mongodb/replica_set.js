// Forms the replica set, and creates the administrator, the roles and the users: what a MongoDB with logins needs before
// the first worker starts. May be run again: it creates what is missing, adds nodes, and updates changed passwords.
//
//     mongosh --quiet --nodb replica_set.js
//
// Run it on the first node's machine, because the first user can be created without a login only from there. Reads
// MONGO_NODES (HOST:PORT, separated by commas, the first node first), MONGO_ADDRESS (of the first node, as seen from this
// machine), RECOVERY_DATABASE (default: `recovery`), and in the folder SECRETS the files mongo_admin_password,
// mongo_worker_password, mongo_operator_password and mongo_client_password.

const SET = 'rs0';
const ADMIN = 'admin';
const TIMEOUT = 120; // seconds for each step
const [UNAUTHORIZED, AUTHENTICATION_FAILED] = [13, 18];

const nodes = process.env.MONGO_NODES.split(',');
const address = process.env.MONGO_ADDRESS || '127.0.0.1:27017';
const recoveryDatabase = process.env.RECOVERY_DATABASE || 'recovery';
const users = {
  'recovery-worker': ['mongo_worker_password', ['recoveryWorker']],
  'recovery-operator': ['mongo_operator_password', ['recoveryOperator']],
  'recovery-client': ['mongo_client_password', ['recoveryClient']],
};

function fail(message) {
  print(`error: ${message}`);
  quit(1);
}

// Return the password in a file of the folder SECRETS.
function secret(name) {
  let text = '';
  try {
    text = require('fs').readFileSync(`${process.env.SECRETS}/${name}`, 'utf8').trim();
  } catch (error) {
    fail(`there is no secret ${name}: ${error.code}; \`make env\` makes it`);
  }
  return text || fail(`the secret ${name} is empty: \`make env\` makes it`);
}

function waitFor(look, what) {
  const until = Date.now() + TIMEOUT * 1000;
  for (;;) {
    let why = '';
    try {
      const found = look();
      if (found) return found;
    } catch (error) {
      why = `: ${error.message}`;
    }
    if (Date.now() > until) fail(`not within ${TIMEOUT} s: ${what}${why}`);
    sleep(200);
  }
}

// `hello` needs no login.
const connected = (host) => connect(`mongodb://${host}/admin?directConnection=true&serverSelectionTimeoutMS=2000`);
const hello = (host) => connected(host).hello();
// Return whether this user has this password. Throws any error other than a failed login.
function logsIn(admin, user, pwd) {
  try {
    return Boolean(admin.auth({ user, pwd }).ok);
  } catch (error) {
    if (error.code === AUTHENTICATION_FAILED) return false;
    throw error;
  }
}

// Return the name of the node's set, or undefined if the node does not answer.
function setOf(host) {
  try {
    return hello(host).setName;
  } catch (error) {
    return undefined;
  }
}

function form() {
  if (nodes.some(setOf)) return; // it goes on without those that are away
  const hint = 'if MONGO_NODES names a node that is not to run, take it out; in compose nodes 2 and 3 are of the profile `nodes`';
  const told = nodes.map((host) => waitFor(() => hello(host), `an answer of ${host} (${hint})`));
  // A node that has lost its data gets it from the other nodes, and must not form its own set.
  if (told.some((one) => one.setName)) return;
  connected(address).adminCommand({ replSetInitiate: { _id: SET, members: [{ _id: 0, host: nodes[0] }] } });
  print(`formed ${SET} of ${nodes[0]}`);
}

function makeAdministrator(pwd) {
  // A newly elected primary is not writable yet.
  const settled = (one) => one.primary && (one.isWritablePrimary || one.primary !== one.me);
  waitFor(() => settled(hello(address)), `a primary of ${SET}`);
  if (logsIn(connected(address), ADMIN, pwd)) return;
  const wrong = 'mongo_admin_password is not the password that MongoDB has for `admin`; take the one that its data were made with';
  if (!hello(address).isWritablePrimary) fail(wrong);
  try {
    connected(address).createUser({ user: ADMIN, pwd, roles: ['root'] });
  } catch (error) {
    if (error.code === UNAUTHORIZED) fail(wrong);
    throw error;
  }
  print(`made the user ${ADMIN}`);
}

function addNodes(admin) {
  for (const host of nodes) {
    const { config } = admin.adminCommand({ replSetGetConfig: 1 });
    if (!config.members.some((member) => member.host === host)) {
      const _id = Math.max(...config.members.map((member) => member._id)) + 1;
      config.members.push({ _id, host });
      config.version += 1;
      waitFor(() => admin.adminCommand({ replSetReconfig: config }).ok, `${host} in ${SET}`);
      const member = () => admin.adminCommand({ replSetGetStatus: 1 }).members.find(({ name }) => name === host);
      waitFor(() => member().stateStr === 'SECONDARY', `the data on ${host}`);
      print(`added ${host}`);
    }
  }
}

function makeUsers(admin) {
  for (const [user, [name, names]] of Object.entries(users)) {
    const pwd = secret(name);
    const roles = names.map((role) => ({ role, db: recoveryDatabase }));
    // For `recovery doctor`, which reads the state of the members.
    if (user === 'recovery-operator') roles.push({ role: 'clusterMonitor', db: 'admin' });
    if (!admin.getUser(user)) {
      admin.createUser({ user, pwd, roles });
      print(`made the user ${user}`);
    } else if (!logsIn(connected(address), user, pwd)) {
      admin.updateUser(user, { pwd, roles });
      print(`${user} has a new password`);
    }
  }
}

const adminPassword = secret('mongo_admin_password');
for (const [name] of Object.values(users)) secret(name); // before anything is done
form();
makeAdministrator(adminPassword);
// From here on, connect to the primary, whichever node that is.
db = connect(`mongodb://${nodes.join(',')}/admin?replicaSet=${SET}&serverSelectionTimeoutMS=${TIMEOUT * 1000}`);
if (!logsIn(db, ADMIN, adminPassword)) fail('mongo_admin_password is not known to the primary');
addNodes(db);
load(`${__dirname}/roles.js`);
makeUsers(db);
