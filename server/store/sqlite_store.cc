#include "server/store/sqlite_store.h"

#include <sqlite3.h>

#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {

namespace {

// kMigrations[v] makes version v + 1 of version v.
constexpr std::array kMigrations = {
    // Sequences outlive their jobs in sqlite_sequence (AUTOINCREMENT).
    R"(CREATE TABLE jobs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record BLOB NOT NULL);
       CREATE TABLE steps (job INTEGER NOT NULL REFERENCES jobs(sequence) ON DELETE CASCADE, step INTEGER NOT NULL,
                           whole INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (job, step)) WITHOUT ROWID;
       CREATE TABLE workers (name TEXT PRIMARY KEY, hello BLOB NOT NULL) WITHOUT ROWID;)",
    R"(CREATE TABLE output (job INTEGER NOT NULL REFERENCES jobs(sequence) ON DELETE CASCADE, line INTEGER NOT NULL,
                            record BLOB NOT NULL, PRIMARY KEY (job, line)) WITHOUT ROWID;
       CREATE TABLE taken (worker TEXT PRIMARY KEY, incarnation TEXT NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID;
       CREATE TABLE drained (worker TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID;)"};

}  // namespace

/// One prepared statement, bound from left to right.
class SqliteStore::Statement {
 public:
  Statement(SqliteStore& store, const char* sql) : store_(store) {
    code_ = sqlite3_prepare_v2(store.database_, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int64_t value) {
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& Text(const std::string& value) {
    if (code_ == SQLITE_OK)
      code_ = sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT,
                                  SQLITE_UTF8);
    return *this;
  }
  Statement& Blob(const google::protobuf::MessageLite& message) {
    const std::string bytes = message.SerializeAsString();
    if (code_ == SQLITE_OK)
      code_ = sqlite3_bind_blob64(statement_, ++bound_, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
    return *this;
  }
  /// To its end, for statements that give no rows; ready to be bound again.
  absl::Status Run() {
    while (Next()) {
    }
    if (code_ != SQLITE_DONE) return store_.Error(code_);
    bound_ = 0;
    code_ = sqlite3_reset(statement_);
    return absl::OkStatus();
  }
  /// The next row; false at the end or on an error (status()).
  bool Next() {
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  absl::Status status() const { return code_ == SQLITE_DONE ? absl::OkStatus() : store_.Error(code_); }
  int64_t Integer(int column) { return sqlite3_column_int64(statement_, column); }
  std::string String(int column) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return {text == nullptr ? "" : text, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  }
  template <typename Message>
  absl::StatusOr<Message> Read(int column) {
    Message message;
    if (!message.ParseFromArray(sqlite3_column_blob(statement_, column),
                                sqlite3_column_bytes(statement_, column)))
      return absl::DataLossError(absl::StrCat(store_.path_, ": a record cannot be read"));
    return message;
  }

 private:
  SqliteStore& store_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK, bound_ = 0;
};

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path,
                                                               const std::string& vfs) {
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                                   vfs.empty() ? nullptr : vfs.c_str());
  if (database == nullptr) return absl::ResourceExhaustedError("no memory for a database");
  std::unique_ptr<SqliteStore> store(new SqliteStore(database, path));
  if (code != SQLITE_OK) return store->Error(code);
  sqlite3_extended_result_codes(database, 1);
  METP_RETURN_IF_ERROR(store->Prepare());
  METP_RETURN_IF_ERROR(store->Migrate());
  return store;
}

SqliteStore::~SqliteStore() { sqlite3_close_v2(database_); }

absl::Status SqliteStore::Error(int code) const {
  const std::string what = absl::StrCat(path_, ": ", sqlite3_errmsg(database_));
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(absl::StrCat(path_, ": another process has it open"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(what);
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(what);
    default:
      return absl::UnavailableError(what);
  }
}

absl::Status SqliteStore::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

// Exclusive from the first access on: nobody else can open it, and WAL needs no shared memory.
absl::Status SqliteStore::Prepare() {
  return Execute(
      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA "
      "foreign_keys = ON;");
}

absl::Status SqliteStore::Migrate() {
  METP_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE;"));
  absl::Status status = [&]() -> absl::Status {
    Statement version(*this, "PRAGMA user_version;");
    if (!version.Next()) return version.status();
    const int64_t found = version.Integer(0), newest = static_cast<int64_t>(kMigrations.size());
    if (found > newest) {
      return absl::FailedPreconditionError(absl::StrCat(path_, ": found schema version ", found,
                                                        ", expected at most ", newest,
                                                        "; a newer metp-coordinator made it"));
    }
    for (int64_t v = found; v < newest; ++v)
      METP_RETURN_IF_ERROR(Execute(kMigrations[static_cast<size_t>(v)]));
    return Execute(absl::StrCat("PRAGMA user_version = ", newest, ";").c_str());
  }();
  if (status.ok()) status = Execute("COMMIT;");
  if (!status.ok()) Execute("ROLLBACK;").IgnoreError();
  return status;
}

absl::StatusOr<StoredState> SqliteStore::Load() {
  StoredState state;
  std::map<int64_t, size_t> at;
  Statement jobs(*this, "SELECT sequence, record FROM jobs ORDER BY sequence;");
  while (jobs.Next()) {
    at[jobs.Integer(0)] = state.jobs.size();
    METP_ASSIGN_OR_RETURN(state.jobs.emplace_back().record, jobs.Read<v1::JobRecord>(1));
  }
  METP_RETURN_IF_ERROR(jobs.status());
  Statement steps(*this, "SELECT job, record FROM steps ORDER BY job, step;");
  while (steps.Next()) {
    METP_ASSIGN_OR_RETURN(v1::StoredStep step, steps.Read<v1::StoredStep>(1));
    state.jobs[at.at(steps.Integer(0))].steps.push_back(std::move(step));
  }
  METP_RETURN_IF_ERROR(steps.status());
  Statement workers(*this, "SELECT hello FROM workers ORDER BY name;");
  while (workers.Next()) {
    METP_ASSIGN_OR_RETURN(v1::WorkerHello hello, workers.Read<v1::WorkerHello>(0));
    state.workers.push_back(std::move(hello));
  }
  METP_RETURN_IF_ERROR(workers.status());
  Statement output(*this, "SELECT job, record FROM output ORDER BY job, line;");
  while (output.Next()) {
    METP_ASSIGN_OR_RETURN(v1::LogLine line, output.Read<v1::LogLine>(1));
    state.jobs[at.at(output.Integer(0))].output.push_back(std::move(line));
  }
  METP_RETURN_IF_ERROR(output.status());
  Statement taken(*this, "SELECT worker, incarnation, sequence FROM taken ORDER BY worker;");
  while (taken.Next()) state.taken.push_back({taken.String(0), taken.String(1), taken.Integer(2)});
  METP_RETURN_IF_ERROR(taken.status());
  Statement drained(*this, "SELECT worker, reason FROM drained ORDER BY worker;");
  while (drained.Next()) state.drains.push_back({drained.String(0), true, drained.String(1)});
  METP_RETURN_IF_ERROR(drained.status());
  Statement last(*this, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs';");
  if (last.Next()) {
    state.last_sequence = last.Integer(0);
    return state;
  }
  METP_RETURN_IF_ERROR(last.status());
  return state;
}

absl::Status SqliteStore::Write(const StoreChange& change) {
  METP_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE;"));
  absl::Status status = Apply(change);
  if (status.ok()) status = Execute("COMMIT;");
  if (status.ok()) return status;
  Execute("ROLLBACK;").IgnoreError();  // a commit that failed may have rolled back already
  return absl::IsInvalidArgument(status) ? status : absl::UnavailableError(status.message());
}

absl::Status SqliteStore::Apply(const StoreChange& change) {
  Statement remove(*this, "DELETE FROM jobs WHERE id = ?;");
  for (const std::string& id : change.deleted) METP_RETURN_IF_ERROR(remove.Text(id).Run());
  Statement put(*this,
                "INSERT INTO jobs (sequence, id, record) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET record = excluded.record;");
  for (const v1::JobRecord& record : change.jobs) {
    if (record.status().id().empty()) return JobWithoutId();
    METP_RETURN_IF_ERROR(put.Bind(record.sequence()).Text(record.status().id()).Blob(record).Run());
  }
  Statement forget(*this,
                   "DELETE FROM steps WHERE job = (SELECT sequence FROM jobs WHERE id = ?) AND "
                   "(step > ? OR (? AND NOT whole));");
  for (const StoreChange::Forget& f : change.forgotten)
    METP_RETURN_IF_ERROR(forget.Text(f.job).Bind(f.after).Bind(f.unfinished ? 1 : 0).Run());
  Statement drop(*this,
                 "DELETE FROM output WHERE job = (SELECT sequence FROM jobs WHERE id = ?) AND line < ?;"),
      line(*this,
           "INSERT OR REPLACE INTO output (job, line, record) SELECT sequence, ?, ? FROM jobs WHERE id = ?;");
  for (const StoreChange::Output& o : change.output) {
    METP_RETURN_IF_ERROR(drop.Text(o.job).Bind(o.first).Run());
    for (const v1::LogLine& l : o.lines) {
      METP_RETURN_IF_ERROR(line.Bind(l.offset()).Blob(l).Text(o.job).Run());
      if (sqlite3_changes(database_) == 0) return OfNoJob("output", o.job);
    }
  }
  Statement step(*this,
                 "INSERT OR REPLACE INTO steps (job, step, whole, record) "
                 "SELECT sequence, ?, ?, ? FROM jobs WHERE id = ?;");
  for (const StoreChange::Step& s : change.steps) {
    METP_RETURN_IF_ERROR(
        step.Bind(s.step.point().step()).Bind(s.step.whole() ? 1 : 0).Blob(s.step).Text(s.job).Run());
    if (sqlite3_changes(database_) == 0) return OfNoJob("a step", s.job);
  }
  return ApplyWorkers(change);
}

absl::Status SqliteStore::ApplyWorkers(const StoreChange& change) {
  Statement gone(*this, "DELETE FROM workers WHERE name = ?;"),
      forgotten(*this, "DELETE FROM taken WHERE worker = ?;");
  for (const std::string& name : change.workers_gone) {
    METP_RETURN_IF_ERROR(gone.Text(name).Run());
    METP_RETURN_IF_ERROR(forgotten.Text(name).Run());
  }
  Statement worker(*this, "INSERT OR REPLACE INTO workers (name, hello) VALUES (?, ?);");
  for (const v1::WorkerHello& hello : change.workers)
    METP_RETURN_IF_ERROR(worker.Text(hello.name()).Blob(hello).Run());
  Statement taken(*this, "INSERT OR REPLACE INTO taken (worker, incarnation, sequence) VALUES (?, ?, ?);");
  for (const StoreChange::Taken& t : change.taken)
    METP_RETURN_IF_ERROR(taken.Text(t.worker).Text(t.incarnation).Bind(t.sequence).Run());
  Statement drain(*this, "INSERT OR REPLACE INTO drained (worker, reason) VALUES (?, ?);"),
      undrain(*this, "DELETE FROM drained WHERE worker = ?;");
  for (const StoreChange::Drain& d : change.drains)
    METP_RETURN_IF_ERROR(d.drained ? drain.Text(d.worker).Text(d.reason).Run()
                                   : undrain.Text(d.worker).Run());
  return absl::OkStatus();
}

}  // namespace metp
