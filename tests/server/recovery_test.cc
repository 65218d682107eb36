#include "server/recovery.h"

#include <gmock/gmock.h>

namespace metp {
namespace {

using ::testing::HasSubstr;

using std::chrono::seconds;

struct Row {
  const char* why;
  EndKind kind;
  bool final;
  int max_restarts, fruitless, began_after, checkpoint_step;
  bool again, counted;
  seconds wait;
  const char* says;
};

const Row kRows[] = {
    {"a death is tried again", EndKind::kDeath, false, 3, 0, 0, 0, true, true, seconds(1),
     "tried again after 1 s"},
    {"so is what a rank says of itself", EndKind::kError, false, 3, 0, 0, 0, true, true, seconds(1),
     "restart 1 of 3"},
    {"and what it says of a neighbour", EndKind::kConsequence, false, 3, 0, 0, 0, true, true, seconds(1),
     "restart 1 of 3"},
    {"the wait doubles", EndKind::kDeath, false, 9, 3, 0, 0, true, true, seconds(8), "restart 4 of 9"},
    {"up to its limit", EndKind::kDeath, false, 99, 40, 0, 0, true, true, seconds(60), "after 60 s"},
    {"the last restart", EndKind::kDeath, false, 3, 2, 0, 0, true, true, seconds(4), "restart 3 of 3"},
    {"none is left", EndKind::kDeath, false, 3, 3, 0, 0, false, false, seconds(0),
     "given up after 3 restarts without a newer checkpoint"},
    {"one of one", EndKind::kDeath, false, 1, 1, 0, 0, false, false, seconds(0),
     "given up after 1 restart without"},
    {"a newer checkpoint begins the count anew", EndKind::kDeath, false, 3, 3, 20, 40, true, false,
     seconds(1), "from the checkpoint of step 40"},
    {"the one it began from is no newer one", EndKind::kDeath, false, 3, 3, 40, 40, false, false, seconds(0),
     "its last good checkpoint is of step 40 in /saved"},
    {"what is final is not tried again", EndKind::kError, true, 3, 0, 0, 20, false, false, seconds(0),
     "the cause; its last good checkpoint is of step 20 in /saved"},
    {"none at all were wished", EndKind::kDeath, false, 0, 0, 0, 20, false, false, seconds(0), "the cause;"},
    {"an interruption costs nothing", EndKind::kInterrupted, false, 3, 3, 0, 0, true, false, seconds(0),
     "it goes on"},
    {"also where no restarts were wished", EndKind::kInterrupted, false, 0, 0, 0, 30, true, false, seconds(0),
     "from the checkpoint of step 30"},
};

TEST(Recovery, DecidesAsTheTableSays) {
  CoordinatorConfig config;
  config.restart_backoff = seconds(1);
  config.restart_backoff_limit = seconds(60);
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.why);
    v1::JobRecord record;
    v1::JobStatus& status = *record.mutable_status();
    status.mutable_job()->set_max_restarts(row.max_restarts);
    status.mutable_job()->mutable_checkpoint()->set_directory("/saved");
    status.set_fruitless_restarts(row.fruitless);
    status.set_checkpoint_step(row.checkpoint_step);
    record.set_began_after(row.began_after);
    const Verdict verdict = AfterAttempt(record, {row.kind, "the cause", row.final}, config);
    EXPECT_EQ(verdict.again, row.again);
    EXPECT_EQ(verdict.fruitless, row.counted);
    EXPECT_EQ(verdict.wait, row.wait);
    EXPECT_THAT(verdict.sentence, HasSubstr(row.says));
    EXPECT_THAT(verdict.sentence, HasSubstr("the cause"));
  }
}

TEST(Recovery, SaysThatAJobWithoutCheckpointsBeginsAgain) {
  v1::JobRecord record;
  record.mutable_status()->mutable_job()->set_max_restarts(3);
  EXPECT_THAT(AfterAttempt(record, {EndKind::kDeath, "gone"}, {}).sentence,
              HasSubstr("from the first step, since the job has no checkpoint section"));
}

}  // namespace
}  // namespace metp
