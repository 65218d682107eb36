// The supervisor with real processes: scripted ranks (tests/support/fake_rank.cc).

#include "worker/daemon/supervisor.h"

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "tests/support/fake_gpus.h"
#include "tests/support/jobs.h"
#include "tests/support/temp_folder.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Takes events out of the outbox, one at a time, waiting for them.
class Events {
 public:
  explicit Events(Outbox& outbox) : outbox_(outbox) {
    outbox_.SetListener([this] {
      MutexLock lock(mutex_);
      news_.NotifyAll();
    });
  }
  /// The next event of that kind; others are passed over.
  v1::WorkerEvent Await(v1::WorkerEvent::KindCase kind) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (true) {
      const v1::WorkerEvents batch = outbox_.Next(1);
      if (batch.events_size() == 0) {
        if (!news_.WaitUntil(mutex_, deadline)) {
          ADD_FAILURE() << "no such event within the patience";
          return {};
        }
      } else if (batch.events(0).kind_case() == kind) {
        return batch.events(0);
      }
    }
  }

 private:
  Outbox& outbox_;
  Mutex mutex_;
  CondVar news_;
};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    config_.rank_program = std::string(METP_BINARY_DIR) + "/metp-fake-rank";
    config_.threads = 3;
    config_.address = "127.0.0.9";
    supervisor_ = std::make_unique<Supervisor>(config_, clock_, outbox_, metrics_);
  }
  v1::StartRank Script(const std::string& acts, int rank = 0) {
    const std::string file = folder_.path() + "/script";
    std::ofstream(file) << acts;
    v1::StartRank command;
    command.set_job_id("job-1");
    *command.mutable_start()->mutable_job() = SmallJob("job", 1, 10, file);
    command.mutable_start()->mutable_plan()->set_degree(1);
    command.mutable_start()->set_rank(rank);
    command.mutable_start()->set_attempt("job-1/1");
    return command;
  }
  void Stop(int rank = 0) {
    v1::StopRank command;
    command.set_attempt("job-1/1");
    command.set_rank(rank);
    supervisor_->Stop(command);
  }
  /// The last event of a rank comes just before it is forgotten.
  void AwaitNoRanks() {
    while (!supervisor_->Ranks().empty()) std::this_thread::yield();
  }
  v1::RankEnded End() { return events_.Await(v1::WorkerEvent::kEnded).ended(); }

  testing::TempFolder folder_;
  WorkerConfig config_;
  RealClock clock_;
  Outbox outbox_{1 << 20};
  Events events_{outbox_};
  WorkerMetrics metrics_{config_, clock_};
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, ForwardsWhatARankSays) {
  supervisor_->Start(Script("all: print caf\xC3\xA9 \xFF\nall: steps 2\n", 4));
  EXPECT_GT(events_.Await(v1::WorkerEvent::kSpawned).spawned().pid(), 0);
  const v1::WorkerEvent started = events_.Await(v1::WorkerEvent::kStarted);
  EXPECT_EQ(started.attempt(), "job-1/1");
  EXPECT_EQ(started.rank(), 4);
  EXPECT_EQ(started.started().description(), "rank 4 of 1, scripted, 3 threads at 127.0.0.9");
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kStep).step().step(), 1);
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kStep).step().step(), 2);
  const v1::RankEnded end = End();
  EXPECT_TRUE(end.clean());
  EXPECT_TRUE(end.has_result());
  EXPECT_FALSE(end.stopped());
  AwaitNoRanks();
}

TEST_F(SupervisorTest, MakesOutputUtf8) {
  supervisor_->Start(Script("all: print caf\xC3\xA9 \xFF\n"));
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kOutput).output().lines(0), "caf\xC3\xA9 \xEF\xBF\xBD");
}

TEST_F(SupervisorTest, SaysHowARankDied) {
  supervisor_->Start(Script("all: kill 9\n"));
  v1::RankEnded end = End();
  EXPECT_EQ(end.how(), "killed by signal 9 (SIGKILL)");
  EXPECT_FALSE(end.has_result());
  EXPECT_FALSE(end.stopped());
  supervisor_->Start(Script("all: exit 7\n"));
  end = End();
  EXPECT_EQ(end.how(), "exited with code 7");
  supervisor_->Start(Script("all: fail 8 device memory is full\n"));
  end = End();
  EXPECT_EQ(end.result().code(), 8);
  EXPECT_EQ(end.result().message(), "device memory is full");
  supervisor_->Start(Script("all: garbage\nall: hang\n"));
  EXPECT_THAT(End().how(), HasSubstr("killed by signal 9 (SIGKILL) after it broke the protocol: "));
}

TEST_F(SupervisorTest, SaysWhenAProgramCannotBeStarted) {
  config_.rank_program = "/nowhere/metp-rank";
  supervisor_->Start(Script(""));
  EXPECT_THAT(End().how(), HasSubstr("could not be started"));
}

TEST_F(SupervisorTest, StopsARankThatObeys) {
  supervisor_->Start(Script("all: hang\n"));
  events_.Await(v1::WorkerEvent::kStarted);
  ASSERT_THAT(supervisor_->Ranks(), SizeIs(1));
  Stop();
  const v1::RankEnded end = End();
  EXPECT_TRUE(end.stopped());
  EXPECT_FALSE(end.left());
  EXPECT_EQ(end.how(), "killed by signal 2 (SIGINT)");
}

TEST_F(SupervisorTest, LetsARankThatHangsSayWhereItIs) {
  config_.dump_grace = std::chrono::milliseconds(200);
  supervisor_->Start(Script("all: dump\nall: steps 1\nall: hang\n"));
  events_.Await(v1::WorkerEvent::kStep);
  v1::StopRank command;
  command.set_attempt("job-1/1");
  command.set_dump(true);
  supervisor_->Stop(command);
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kOutput).output().lines(0), "here I am");
  const v1::RankEnded end = End();
  EXPECT_TRUE(end.stopped());
  EXPECT_EQ(end.how(), "killed by signal 9 (SIGKILL)");
}

TEST_F(SupervisorTest, LetsARankLeaveAndKillsItAfterTheGrace) {
  config_.checkpoint_grace = std::chrono::milliseconds(50);
  v1::InterruptRank command;
  command.set_attempt("job-1/1");
  supervisor_->Start(Script("all: steps 1\nall: hang\n"));
  events_.Await(v1::WorkerEvent::kStep);
  supervisor_->Interrupt(command);
  v1::RankEnded end = End();
  EXPECT_TRUE(end.left());
  EXPECT_FALSE(end.stopped());
  EXPECT_EQ(end.how(), "killed by signal 15 (SIGTERM)");
  AwaitNoRanks();
  supervisor_->Start(Script("all: ignore-term\nall: steps 1\nall: hang\n"));
  events_.Await(v1::WorkerEvent::kStep);
  supervisor_->Interrupt(command);
  end = End();
  EXPECT_TRUE(end.left());
  EXPECT_EQ(end.how(), "asked to leave, and killed by signal 9 (SIGKILL) after the grace");
}

TEST_F(SupervisorTest, KillsARankThatDoesNotObeyAfterTheGrace) {
  config_.stop_grace = std::chrono::milliseconds(50);
  supervisor_->Start(Script("all: ignore-term\nall: steps 1\nall: hang\n"));
  events_.Await(v1::WorkerEvent::kStep);
  Stop();
  const v1::RankEnded end = End();
  EXPECT_TRUE(end.stopped());
  EXPECT_EQ(end.how(), "killed by signal 9 (SIGKILL)");
}

TEST_F(SupervisorTest, DoesNotTakeADeathForAStopThatItDoesNotExplain) {
  supervisor_->Start(Script("all: ignore-term\nall: steps 1\nall: hang\n"));
  const int pid = events_.Await(v1::WorkerEvent::kSpawned).spawned().pid();
  events_.Await(v1::WorkerEvent::kStep);
  Stop();
  // A second command is answered after the first was carried out.
  v1::StopRank other;
  other.set_attempt("other/1");
  supervisor_->Stop(other);
  EXPECT_EQ(End().how(), "was not there any more");
  kill(pid, SIGUSR1);  // one that sanitizers leave alone
  EXPECT_FALSE(End().stopped());
}

TEST_F(SupervisorTest, StartsARankOnceHoweverOftenItIsTold) {
  const v1::StartRank command = Script("all: hang\n");
  supervisor_->Start(command);
  events_.Await(v1::WorkerEvent::kStarted);
  supervisor_->Start(command);
  Stop();
  EXPECT_TRUE(End().stopped());
  AwaitNoRanks();
}

TEST_F(SupervisorTest, DeliversValuesThatWereAskedForOnce) {
  supervisor_->Start(Script("all: meet\nall: hang\n"));
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kPut).put().value(), "address of 0");
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kGet).get().key(), "rank/0");
  supervisor_->AskAgain();  // the session broke meanwhile
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kGet).get().key(), "rank/0");
  v1::RankValue value;
  value.set_attempt("job-1/1");
  value.mutable_value()->set_key("rank/0");
  value.mutable_value()->set_value("address of 0");
  supervisor_->Deliver(value);
  supervisor_->Deliver(value);
  Stop();
  EXPECT_TRUE(End().stopped());
}

TEST_F(SupervisorTest, HandsOnATraceOrderAndWhatComesOfIt) {
  v1::TraceRank order;
  order.set_attempt("job-1/1");
  order.set_rank(3);
  order.mutable_order()->set_steps(1);
  supervisor_->Trace(order);  // of a rank that is not here: nothing
  supervisor_->Start(Script("all: trace\nall: print ready\nall: hang\n", 3));
  events_.Await(v1::WorkerEvent::kOutput);
  supervisor_->Trace(order);
  const v1::WorkerEvent event = events_.Await(v1::WorkerEvent::kTrace);
  EXPECT_EQ(event.attempt(), "job-1/1");
  EXPECT_EQ(event.rank(), 3);
  EXPECT_EQ(event.trace().rank(), 3);
  EXPECT_EQ(event.trace().step(), 1);
  EXPECT_TRUE(event.trace().last());
  Stop(3);
  EXPECT_TRUE(End().stopped());
}

TEST_F(SupervisorTest, LeavesWhenTheProcessesAreGone) {
  supervisor_->Start(Script("all: hang\n"));
  const int pid = events_.Await(v1::WorkerEvent::kSpawned).spawned().pid();
  events_.Await(v1::WorkerEvent::kStarted);
  supervisor_->Leave();
  EXPECT_EQ(kill(pid, 0), -1);
  const v1::RankEnded end = End();
  EXPECT_FALSE(end.stopped());
  EXPECT_TRUE(end.left());
  supervisor_->Start(Script("all: hang\n", 1));
  EXPECT_THAT(End().how(), HasSubstr("not started"));
}

/// On a made-up GPU.
class GpuSupervisorTest : public SupervisorTest {
 protected:
  GpuSupervisorTest() {
    config_.gpu = "0";
    config_.nvml_library = testing::FakeGpus::library();
    config_.lock_folder = folder_.path();
    config_.gpu_look = std::chrono::milliseconds(5);
    config_.gpu_memory_wait = std::chrono::seconds(60);
    config_.gpu_error_wait = std::chrono::milliseconds(0);  // the made-up library has it ready
    absl::StatusOr<TakenGpu> taken = TakeGpu(config_);
    EXPECT_TRUE(taken.ok()) << taken.status();
    watch_ = std::make_unique<GpuWatch>(*std::move(taken), config_.gpu_slack_bytes);
    supervisor_ = std::make_unique<Supervisor>(config_, clock_, outbox_, metrics_, watch_.get());
  }
  ~GpuSupervisorTest() override { supervisor_.reset(); }
  v1::StartRank Script(const std::string& acts) {
    v1::StartRank command = SupervisorTest::Script(acts);
    command.mutable_start()->mutable_plan()->set_device(v1::JobSpec::DEVICE_GPU);
    return command;
  }
  void Use(int64_t mib) {
    fake_.gpus[0].used_mib = mib;
    fake_.gpus[0].processes = {{71, mib}};
    fake_.Write();
  }
  /// The script's `await` goes on.
  std::string Gate() const { return folder_.path() + "/gate"; }
  void OpenGate() const { std::ofstream(Gate()).flush(); }

  testing::FakeGpus fake_;
  std::unique_ptr<GpuWatch> watch_;
};

TEST_F(GpuSupervisorTest, ShowsARankItsDeviceAlone) {
  supervisor_->Start(Script("all: env CUDA_VISIBLE_DEVICES\n"));
  EXPECT_EQ(events_.Await(v1::WorkerEvent::kOutput).output().lines(0), fake_.gpus[0].uuid);
  EXPECT_EQ(End().how(), "exited with code 0");
}

TEST_F(GpuSupervisorTest, RefusesARankOfAPlanForCpus) {
  supervisor_->Start(SupervisorTest::Script("all: steps 1\n"));
  EXPECT_EQ(End().how(), "could not be started: its plan is for CPUs, and this worker computes on a GPU");
}

TEST_F(SupervisorTest, RefusesARankOfAPlanForGpus) {
  v1::StartRank command = Script("all: steps 1\n");
  command.mutable_start()->mutable_plan()->set_device(v1::JobSpec::DEVICE_GPU);
  supervisor_->Start(command);
  EXPECT_EQ(End().how(), "could not be started: its plan is for GPUs, and this worker computes on a CPU");
  AwaitNoRanks();
}

TEST_F(GpuSupervisorTest, StartsARankWhenTheDevicesMemoryIsFree) {
  Use(20000);
  supervisor_->Start(Script("all: steps 1\n"));
  v1::StopRank other;  // answered after the start was carried out
  other.set_attempt("other/1");
  supervisor_->Stop(other);
  EXPECT_EQ(End().how(), "was not there any more");
  EXPECT_THAT(supervisor_->Ranks(), SizeIs(1));  // known, so that nobody takes it for lost
  Use(4);
  events_.Await(v1::WorkerEvent::kStep);
  EXPECT_TRUE(End().clean());
}

TEST_F(GpuSupervisorTest, RefusesARankWhoseMemoryDoesNotComeBack) {
  config_.gpu_memory_wait = std::chrono::milliseconds(20);
  Use(20004);
  supervisor_->Start(Script("all: hang\n"));
  EXPECT_EQ(End().how(), "could not be started: 20000 MiB of the memory of GPU " + fake_.gpus[0].uuid +
                             " are still in use, pid 71 holds 20004 MiB");
  AwaitNoRanks();
  fake_.gpus[0].error = 15;
  fake_.Write();
  supervisor_->Start(Script("all: hang\n"));
  EXPECT_THAT(End().how(), HasSubstr("could not be started: nvmlDeviceGetMemoryInfo_v2: GPU is lost"));
}

TEST_F(GpuSupervisorTest, LetsARankGoThatIsStillWaiting) {
  Use(20000);
  supervisor_->Start(Script("all: hang\n"));
  Stop();
  v1::RankEnded end = End();
  EXPECT_TRUE(end.stopped());
  EXPECT_EQ(end.how(), "was asked to end before it could be started");
  AwaitNoRanks();
  supervisor_->Start(Script("all: hang\n"));
  supervisor_->Leave();
  end = End();
  EXPECT_TRUE(end.left());
  EXPECT_FALSE(end.stopped());
}

TEST_F(GpuSupervisorTest, TellsWhatTheDeviceReportedWithTheEnd) {
  fake_.gpus[0].xids = {79};  // before: not this rank's
  fake_.Write();
  supervisor_->Start(Script("all: await " + Gate() + "\nall: fail 13 a kernel failed\n"));
  events_.Await(v1::WorkerEvent::kStarted);
  fake_.gpus[0].xids = {79, 31, 43, 31};
  fake_.gpus[0].ecc_errors = 2;
  fake_.Write();
  OpenGate();
  v1::RankEnded end = End();
  const std::string errors =
      "; its GPU reported Xid 31 (a kernel touched memory that is not mapped), Xid 43 (the GPU has stopped "
      "this "
      "program's work after an error of it), 2 new memory errors that could not be corrected";
  EXPECT_EQ(end.result().message(), "a kernel failed" + errors);
  EXPECT_EQ(end.how(), "exited with code 1" + errors);
  AwaitNoRanks();
  supervisor_->Start(Script("all: exit 7\n"));
  EXPECT_EQ(End().how(), "exited with code 7");
}

TEST_F(GpuSupervisorTest, SaysOfADeadRankThatItsDeviceIsLost) {
  std::promise<std::string> lost;
  supervisor_->OnGpuLost([&](const std::string& why) { lost.set_value(why); });
  supervisor_->Start(Script("all: await " + Gate() + "\nall: kill 9\n"));
  events_.Await(v1::WorkerEvent::kStarted);
  fake_.gpus[0].xids = {79};
  fake_.gpus[0].error = 15;
  fake_.Write();
  OpenGate();
  EXPECT_EQ(End().how(),
            "killed by signal 9 (SIGKILL); its GPU reported Xid 79 (the GPU has fallen off the bus: restart "
            "the machine); its GPU does "
            "not answer (nvmlDeviceGetMemoryInfo_v2: GPU is lost)");
  EXPECT_EQ(lost.get_future().get(), "nvmlDeviceGetMemoryInfo_v2: GPU is lost");
}

TEST_F(GpuSupervisorTest, TellsAnEndWhenTheMemoryHasComeBack) {
  supervisor_->Start(Script("all: hang\n"));
  const int pid = events_.Await(v1::WorkerEvent::kSpawned).spawned().pid();
  events_.Await(v1::WorkerEvent::kStarted);
  Use(20000);
  Stop();
  while (kill(pid, 0) == 0) std::this_thread::yield();
  EXPECT_THAT(supervisor_->Ranks(), SizeIs(1));
  EXPECT_EQ(outbox_.Next(1).events_size(), 0);
  Use(4);
  EXPECT_EQ(End().how(), "killed by signal 2 (SIGINT)");
}

TEST_F(GpuSupervisorTest, DoesNotKeepAnEndBackForEver) {
  config_.gpu_memory_wait = std::chrono::milliseconds(20);
  supervisor_->Start(Script("all: await " + Gate() + "\nall: exit 7\n"));
  events_.Await(v1::WorkerEvent::kStarted);
  Use(20004);
  OpenGate();
  EXPECT_THAT(End().how(), AllOf(HasSubstr("exited with code 7; 20000 MiB of the memory of GPU "),
                                 HasSubstr("are still in use, pid 71 holds 20004 MiB")));
}

}  // namespace
}  // namespace metp
