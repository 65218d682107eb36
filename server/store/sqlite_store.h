#pragma once

// The store on disk: one SQLite database (chosen as the most tested transactional file there is), in WAL mode with full
// synchronisation, so that what Write returned OK for survives a crash of the process, of the machine, and of its power.
//
// Schema: numbered versions; a database of an older one is migrated when it is opened, in one transaction. Messages are
// kept as protobuf bytes: fields that a later version adds need no migration.
//
// One coordinator a database: it is locked while it is open.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace metp {

class SqliteStore final : public Store {
 public:
  /// Makes the file if it is not there; its folder must be. `vfs`: SQLite's name of a file system, for tests; empty: the
  /// usual one. FailedPrecondition: another process has it open, or a newer version made it. DataLoss: it is no database,
  /// or broken. Unavailable: it cannot be opened or written.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path,
                                                           const std::string& vfs = "");
  ~SqliteStore() override;

  absl::StatusOr<StoredState> Load() override;
  absl::Status Write(const StoreChange& change) override;

 private:
  class Statement;
  SqliteStore(sqlite3* database, std::string path) : database_(database), path_(std::move(path)) {}
  absl::Status Prepare();
  absl::Status Migrate();
  absl::Status Execute(const char* sql);
  absl::Status Apply(const StoreChange& change);
  absl::Status ApplyWorkers(const StoreChange& change);
  absl::Status Error(int code) const;

  sqlite3* database_;
  const std::string path_;
};

}  // namespace metp
