// What a worker makes of its ranks' words: metrics and UTF-8.

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_gpus.h"
#include "worker/daemon/metrics.h"
#include "worker/daemon/utf8.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::StepReport Report(int step) {
  v1::StepReport report;
  report.set_rank(2);
  report.set_step(step);
  report.set_loss(2.5);
  report.set_step_seconds(0.5);
  report.set_tokens(100);
  report.set_peak_bytes(4096);
  report.set_sent_bytes(1000 * step);
  (*report.mutable_current_bytes())["weights"] = 1024;
  v1::PassTimes& pass = (*report.mutable_passes())["mlp.forward"];
  pass.set_communication_seconds(0.25);
  pass.set_exposed_seconds(0.125);
  pass.set_hops(6);
  pass.set_exposed_hops(2);
  report.set_host_peak_bytes(512);
  report.mutable_host()->set_copy_seconds(0.5);
  report.mutable_host()->set_update_seconds(0.25);
  report.mutable_host()->set_exposed_seconds(0.125);
  report.set_checkpoint_seconds(0.75);
  return report;
}

class WorkerMetricsTest : public ::testing::Test {
 protected:
  /// Disks are asked on another thread.
  void AwaitText(const std::string& part) {
    for (int i = 0; i < 2000 && metrics_.Text().find(part) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  WorkerConfig config_;
  FakeClock clock_;
  WorkerMetrics metrics_{config_, clock_};
};

TEST_F(WorkerMetricsTest, SumsWhatIsPerStepAndShowsTheLastOfTheRest) {
  metrics_.ShowMemory(65536);
  metrics_.RankStarted("job-1", "job-1/1", 2);
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("metp_loss")));
  metrics_.Observe("job-1/1", Report(1));
  metrics_.Observe("job-1/1", Report(2));
  metrics_.Observe("stale/1", Report(9));
  const std::string text = metrics_.Text();
  for (const char* line : {
           "# TYPE metp_tokens_total counter\n",
           "metp_tokens_total{job=\"job-1\",rank=\"2\"} 200\n",
           "metp_loss{job=\"job-1\",rank=\"2\"} 2.5\n",
           "metp_step{job=\"job-1\",rank=\"2\"} 2\n",
           "metp_sent_bytes_total{job=\"job-1\",rank=\"2\"} 2000\n",
           "metp_memory_bytes{job=\"job-1\",rank=\"2\",category=\"weights\"} 1024\n",
           "metp_memory_peak_bytes{job=\"job-1\",rank=\"2\"} 4096\n",
           "metp_pass_communication_seconds_total{job=\"job-1\",rank=\"2\",pass=\"mlp.forward\"} 0.5\n",
           "metp_pass_exposed_seconds_total{job=\"job-1\",rank=\"2\",pass=\"mlp.forward\"} 0.25\n",
           "metp_pass_hops_total{job=\"job-1\",rank=\"2\",pass=\"mlp.forward\"} 12\n",
           "metp_pass_exposed_hops_total{job=\"job-1\",rank=\"2\",pass=\"mlp.forward\"} 4\n",
           "metp_steps_total{job=\"job-1\",rank=\"2\"} 2\n",
           "metp_memory_capacity_bytes{job=\"job-1\",rank=\"2\"} 65536\n",
           "metp_host_memory_peak_bytes{job=\"job-1\",rank=\"2\"} 512\n",
           "metp_host_copy_seconds_total{job=\"job-1\",rank=\"2\"} 1\n",
           "metp_host_update_seconds_total{job=\"job-1\",rank=\"2\"} 0.5\n",
           "metp_host_exposed_seconds_total{job=\"job-1\",rank=\"2\"} 0.25\n",
           "metp_checkpoint_seconds_total{job=\"job-1\",rank=\"2\"} 1.5\n",
           "metp_ranks_running 1\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(WorkerMetricsTest, TellsTheRoomForCheckpointsBeforeTheirFolderIsThere) {
  metrics_.RankStarted("job-1", "job-1/1", 2);
  metrics_.Observe("job-1/1", Report(1));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("metp_checkpoint_disk")));
  for (const char* folder : {"/", "/no/such/folder", "nor/this"}) {
    metrics_.RankStarted("job-1", "job-1/2", 2, folder);
    metrics_.Observe("job-1/2", Report(1));
    AwaitText("metp_checkpoint_disk_free_bytes");
    EXPECT_THAT(metrics_.Text(), ::testing::ContainsRegex(
                                     "metp_checkpoint_disk_free_bytes\\{job=\"job-1\",rank=\"2\"\\} [1-9]"));
    EXPECT_THAT(metrics_.Text(), HasSubstr("metp_checkpoint_disk_size_bytes{"));
  }
}

/// A volume that answers when it is let go, as one over a network that broke.
struct StalledVolume {
  std::promise<void> asked, let_go;
  std::shared_future<void> free{let_go.get_future()};
};

TEST(WorkerMetricsOfAStalledVolume, WaitForNothing) {
  const auto volume = std::make_shared<StalledVolume>();
  const auto ask = [volume](const std::string&) -> std::optional<DiskRoom> {
    volume->asked.set_value();
    volume->free.wait();
    return std::nullopt;
  };
  const auto everything = [&] {
    const WorkerConfig config;
    const FakeClock clock;
    WorkerMetrics metrics(config, clock, ask);
    metrics.RankStarted("job-1", "job-1/1", 2, "/checkpoints");
    volume->asked.get_future().wait();
    metrics.Observe("job-1/1", Report(1));
    EXPECT_THAT(metrics.Text(), HasSubstr("metp_steps_total{job=\"job-1\",rank=\"2\"} 1\n"));
    EXPECT_THAT(metrics.Text(), Not(HasSubstr("metp_checkpoint_disk")));
    metrics.RankEnded("job-1/1", 2);
  };  // and the end
  const std::future<void> done = std::async(std::launch::async, everything);
  EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  volume->let_go.set_value();
}

TEST(DiskWatch, AsksAgainAndKeepsTheLastAnswer) {
  const auto asked = std::make_shared<std::atomic<int>>(0);
  DiskWatch watch(
      [asked](const std::string& folder) {
        EXPECT_EQ(folder, "/a");
        return DiskRoom{static_cast<double>(++*asked), 100};
      },
      std::chrono::milliseconds(1));
  const auto folder = watch.Watch("/a");
  while (!folder->Last().has_value() || folder->Last()->free_bytes < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(folder->Last()->size_bytes, 100);
}

TEST_F(WorkerMetricsTest, ShowsTheGpu) {
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("metp_gpu")));
  testing::FakeGpus fake;
  fake.gpus[0] = {.uuid = "GPU-1", .total_mib = 1000, .reserved_mib = 100, .used_mib = 16};
  fake.Write();
  metrics_.ShowGpu(*Nvml::Open(testing::FakeGpus::library())->Gpus()->at(0));
  for (const char* line : {
           "metp_gpu_info{gpu=\"GPU-1\",name=\"NVIDIA H200\",driver=\"580.95.05\",bus=\"00000000:3B:00.0\"} "
           "1\n",
           "metp_gpu_answers{gpu=\"GPU-1\"} 1\n",
           "metp_gpu_memory_total_bytes{gpu=\"GPU-1\"} 943718400\n",
           "metp_gpu_memory_used_bytes{gpu=\"GPU-1\"} 16777216\n",
       }) {
    EXPECT_THAT(metrics_.Text(), HasSubstr(line));
  }
  metrics_.NoteXid(79);
  metrics_.NoteXid(79);
  EXPECT_THAT(metrics_.Text(), HasSubstr("metp_gpu_xids_total{gpu=\"GPU-1\",xid=\"79\"} 2\n"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("metp_gpu_memory_errors_total{gpu=\"GPU-1\"} 0\n"));
  fake.gpus[0].error = 15;
  fake.Write();
  EXPECT_THAT(metrics_.Text(), HasSubstr("metp_gpu_answers{gpu=\"GPU-1\"} 0\n"));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("metp_gpu_memory")));
}

TEST_F(WorkerMetricsTest, RemovesARanksSeriesSomeTimeAfterItsEnd) {
  metrics_.RankStarted("job-1", "job-1/1", 2);
  metrics_.Observe("job-1/1", Report(1));
  metrics_.RankEnded("job-1/1", 2);
  EXPECT_THAT(metrics_.Text(), HasSubstr("job-1"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("metp_ranks_running 0\n"));
  clock_.Advance(config_.metrics_kept + std::chrono::milliseconds(1));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("job-1")));
}

TEST_F(WorkerMetricsTest, RemovesEndedSeriesWhenTheNextRankStarts) {
  metrics_.RankStarted("job-1", "job-1/1", 2);
  metrics_.Observe("job-1/1", Report(1));
  metrics_.RankEnded("job-1/1", 2);
  metrics_.RankStarted("job-2", "job-2/1", 0);
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("job-1")));
}

TEST(Utf8, LeavesWellFormedTextAlone) {
  for (const std::string text : {"", "plain", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80 end"})
    EXPECT_EQ(ToUtf8(text), text);
}

TEST(Utf8, ReplacesWhatIsNotUtf8) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(ToUtf8("a\xFF z"), "a" + mark + " z");
  EXPECT_EQ(ToUtf8("\xC3"), mark);                        // cut off
  EXPECT_EQ(ToUtf8("\xC0\x80"), mark + mark);             // longer than needed
  EXPECT_EQ(ToUtf8("\xED\xA0\x80"), mark + mark + mark);  // a surrogate
  EXPECT_EQ(ToUtf8("\xF5\x80\x80\x80"), mark + mark + mark + mark);
  EXPECT_EQ(ToUtf8("\xE2\x82 x"), mark + mark + " x");
}

}  // namespace
}  // namespace metp
