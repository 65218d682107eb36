#include "server/store/sqlite_store.h"

#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "tests/server/store/crash_disk.h"
#include "tests/server/store/store_conformance.h"
#include "tests/support/temp_folder.h"

namespace metp {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Store> InMemory() {
  auto store = SqliteStore::Open(":memory:");
  EXPECT_THAT(store, IsOk());
  return *std::move(store);
}
INSTANTIATE_TEST_SUITE_P(SqliteStore, StoreConformance, ::testing::Values(InMemory));

class SqliteStoreTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<SqliteStore>> Open() { return SqliteStore::Open(path_); }
  void Sql(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/state.db";
};

TEST_F(SqliteStoreTest, GivesBackInTheNextProcessWhatWasWritten) {
  {
    auto store = Open();
    ASSERT_THAT(store, IsOk());
    v1::WorkerHello worker;
    worker.set_name("cpu-0");
    ASSERT_THAT(
        (*store)->Write({.jobs = {Record("a", 5, "why")}, .steps = {Step("a", 1, 0.5)}, .workers = {worker}}),
        IsOk());
    ASSERT_THAT((*store)->Write({.jobs = {Record("b", 6)}}), IsOk());
    ASSERT_THAT((*store)->Write({.deleted = {"b"}}), IsOk());
  }
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  const auto state = (*store)->Load();
  ASSERT_THAT(state, IsOk());
  ASSERT_THAT(state->jobs, ::testing::SizeIs(1));
  EXPECT_EQ(state->jobs[0].record.status().reason(), "why");
  EXPECT_EQ(Curve(state->jobs[0]), "1:0.50");
  EXPECT_EQ(state->last_sequence, 6);
  EXPECT_THAT(state->workers, ::testing::SizeIs(1));
}

TEST_F(SqliteStoreTest, IsOneProcesssAtATime) {
  auto first = Open();
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process has it open")));
  first->reset();
  EXPECT_THAT(Open(), IsOk());
}

TEST_F(SqliteStoreTest, RefusesWhatItCannotRead) {
  ASSERT_THAT(Open(), IsOk());
  Sql("PRAGMA user_version = 99;");
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("found schema version 99, expected at most 2; a newer metp-coordinator")));
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
  EXPECT_THAT(SqliteStore::Open(folder_.path() + "/none/state.db"), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SqliteStoreTest, TakesOverWhatAnEarlierVersionHasWritten) {
  Sql("CREATE TABLE jobs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record BLOB "
      "NOT NULL);"
      "CREATE TABLE steps (job INTEGER NOT NULL REFERENCES jobs(sequence) ON DELETE CASCADE, step INTEGER "
      "NOT NULL,"
      " whole INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (job, step)) WITHOUT ROWID;"
      "CREATE TABLE workers (name TEXT PRIMARY KEY, hello BLOB NOT NULL) WITHOUT ROWID;"
      "INSERT INTO jobs VALUES (4, 'a', x'0a030a0161');"  // a record with status.id a
      "PRAGMA user_version = 1;");
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  const auto state = (*store)->Load();
  ASSERT_THAT(state, IsOk());
  ASSERT_THAT(state->jobs, ::testing::SizeIs(1));
  EXPECT_EQ(state->jobs[0].record.status().id(), "a");
  EXPECT_EQ(state->last_sequence, 4);
  EXPECT_THAT((*store)->Write({.output = {{"a", 0, {}}}, .drains = {{"cpu-0", true, "why"}}}), IsOk());
  EXPECT_THAT((*store)->Load()->drains, ::testing::SizeIs(1));
}

TEST_F(SqliteStoreTest, SaysThatARecordIsBroken) {
  {
    auto store = Open();
    ASSERT_THAT((*store)->Write({.jobs = {Record("a", 1)}}), IsOk());
  }
  Sql("UPDATE jobs SET record = x'ff';");
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT((*store)->Load(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a record cannot be read")));
}

/// Twelve changes, each of a record, a step, a worker, a line and what was taken at once, the store closed and opened again half way; returns how
/// many were acknowledged.
int RunChanges(const std::string& vfs) {
  int acknowledged = 0;
  for (int half = 0; half < 2; ++half) {
    auto store = SqliteStore::Open("state.db", vfs);
    if (!store.ok()) return acknowledged;
    for (int i = 0; i < 6; ++i) {
      const int number = acknowledged + 1;
      v1::WorkerHello worker;
      worker.set_name("cpu-0");
      worker.set_pid(number);
      const std::string reason = std::to_string(number) + std::string(3000, ' ');  // over several pages
      const StoreChange change = {.jobs = {Record("a", 1, reason)},
                                  .steps = {Step("a", number, 0.5)},
                                  .workers = {worker},
                                  .output = {{"a", 0, {Line(number - 1, reason)}}},
                                  .taken = {{"cpu-0", "i", number}}};
      if (!(*store)->Write(change).ok()) return acknowledged;
      ++acknowledged;
    }
  }
  return acknowledged;
}

TEST(SqliteCrash, AnywhereLeavesTheStateBeforeOrAfterAndNothingBetween) {
  int crashes = 0;
  for (int64_t operation = 1; operation < 10'000; ++operation) {
    bool survived = false;
    for (uint32_t seed = 0; seed < 4; ++seed) {
      CrashDisk disk("crash-disk");
      disk.FailAfter(operation);
      const int acknowledged = RunChanges("crash-disk");
      survived = !disk.failed();
      if (survived) break;
      ++crashes;
      disk.PowerOn(seed);
      SCOPED_TRACE(::testing::Message() << "operation " << operation << ", seed " << seed);
      auto store = SqliteStore::Open("state.db", "crash-disk");
      ASSERT_THAT(store, IsOk());
      const auto state = (*store)->Load();
      ASSERT_THAT(state, IsOk());
      const int found = state->jobs.empty() ? 0 : std::stoi(state->jobs[0].record.status().reason());
      ASSERT_TRUE(found == acknowledged || found == acknowledged + 1) << found << " of " << acknowledged;
      if (found == 0) continue;
      ASSERT_EQ(state->jobs[0].steps.size(), static_cast<size_t>(found));
      ASSERT_EQ(state->workers[0].pid(), found);
      ASSERT_EQ(state->jobs[0].output.size(), static_cast<size_t>(found));
      ASSERT_EQ(state->taken[0].sequence, found);
      ASSERT_THAT((*store)->Write({.jobs = {Record("b", 2)}}), IsOk());  // and it goes on
    }
    if (survived) {
      EXPECT_GT(crashes, 200);
      return;
    }
  }
  FAIL() << "the changes never came to their end";
}

TEST(SqliteCrash, ADiskThatRefusesAWriteLeavesTheStoreUsable) {
  CrashDisk disk("full-disk");
  auto store = SqliteStore::Open("state.db", "full-disk");
  ASSERT_THAT(store, IsOk());
  ASSERT_THAT((*store)->Write({.jobs = {Record("a", 1, "before")}}), IsOk());
  disk.FailAfter(1);
  EXPECT_THAT((*store)->Write({.jobs = {Record("a", 1, "after")}}), StatusIs(absl::StatusCode::kUnavailable));
  disk.FailAfter(0);
  EXPECT_EQ((*store)->Load()->jobs[0].record.status().reason(), "before");
  EXPECT_THAT((*store)->Write({.jobs = {Record("a", 1, "after")}}), IsOk());
  EXPECT_EQ((*store)->Load()->jobs[0].record.status().reason(), "after");
}

}  // namespace
}  // namespace metp
