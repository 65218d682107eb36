// What a submission is planned on, and what is refused before it is queued.

#include <google/protobuf/util/message_differencer.h>

#include "tests/server/controller_fixture.h"
#include "tests/support/planned_jobs.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ControllerPlanning : public ControllerTest {
 protected:
  /// Two workers on each, names in turns, with the profile of a GPU.
  std::vector<Worker> OnTwoNodes() {
    std::vector<Worker> workers(4);
    for (int i = 0; i < 4; ++i) {
      workers[i].name = "gpu-" + std::to_string(i);
      workers[i].node = i % 2 == 0 ? "even" : "odd";
      workers[i].profile = Profile("h100-80g");
      EXPECT_THAT(Connect(workers[i]), IsOk());
      workers[i].link->Take();
    }
    return workers;
  }
  v1::JobSpec OnKind(int degree, v1::JobSpec::Device device) {
    v1::JobSpec job = SmallJob("a", degree);
    job.set_device(device);
    return job;
  }
  v1::DeviceProfile ProfileOf(const std::string& name) {
    for (const v1::WorkerStatus& worker : workers_.List()) {
      if (worker.name() == name) return worker.profile();
    }
    return {};
  }
};

TEST_F(ControllerPlanning, PlansForTheKindOfDeviceThatTheJobAsksFor) {
  Worker cpu, gpus[2];
  cpu.name = "cpu-0";
  for (int i = 0; i < 2; ++i) {
    gpus[i].name = "gpu-" + std::to_string(i);
    gpus[i].device = v1::JobSpec::DEVICE_GPU;
  }
  v1::JobSpec job = SmallJob("a", 1);
  EXPECT_THAT(Connect(cpu), IsOk());
  EXPECT_EQ(SubmitJob("before", job)->plan().device(), v1::JobSpec::DEVICE_CPU);
  for (Worker& gpu : gpus) EXPECT_THAT(Connect(gpu), IsOk());
  EXPECT_EQ(SubmitJob("auto", job)->plan().device(), v1::JobSpec::DEVICE_GPU);
  job.set_device(v1::JobSpec::DEVICE_CPU);
  EXPECT_EQ(SubmitJob("cpu", job)->plan().device(), v1::JobSpec::DEVICE_CPU);
  EXPECT_THAT(SubmitJob("cpus", OnKind(2, v1::JobSpec::DEVICE_CPU)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "parallel.degree: found 2, expected at most 1, the number of registered CPU workers"));
  EXPECT_THAT(SubmitJob("gpus", OnKind(3, v1::JobSpec::DEVICE_GPU)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "parallel.degree: found 3, expected at most 2, the number of registered GPU workers"));
}

TEST_F(ControllerPlanning, RanksOfAJobAreAllOnDevicesOfItsKind) {
  std::vector<Worker> workers(4);
  for (int i = 0; i < 4; ++i) {
    workers[i].name = "w-" + std::to_string(i);
    if (i % 2 == 1) workers[i].device = v1::JobSpec::DEVICE_GPU;
    EXPECT_THAT(Connect(workers[i]), IsOk());
  }
  const auto on_gpus = SubmitJob("gpu", OnKind(2, v1::JobSpec::DEVICE_GPU));
  const auto on_cpus = SubmitJob("cpu", OnKind(2, v1::JobSpec::DEVICE_CPU));
  ASSERT_THAT(on_gpus, IsOk());
  ASSERT_THAT(on_cpus, IsOk());
  controller_.Tick();
  const auto workers_of = [&](const std::string& id) {
    const auto status = jobs_.Get(id);
    std::vector<std::string> names;
    for (const v1::RankStatus& rank : status->ranks()) names.push_back(rank.worker());
    return names;
  };
  EXPECT_THAT(workers_of(on_gpus->id()), ElementsAre("w-1", "w-3"));
  EXPECT_THAT(workers_of(on_cpus->id()), ElementsAre("w-0", "w-2"));
}

TEST_F(ControllerPlanning, RefusesHeadsTooWideForFlashAttentionOnGpus) {
  Worker gpu;
  gpu.name = "gpu-0";
  gpu.device = v1::JobSpec::DEVICE_GPU;
  EXPECT_THAT(Connect(gpu), IsOk());
  v1::JobSpec job = OnKind(1, v1::JobSpec::DEVICE_GPU);
  job.mutable_model()->set_head_dim(258);
  EXPECT_THAT(SubmitJob("flash", job),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "model.head_dim: found 258, expected at most 256 with flash attention on GPUs; "
                       "parallel.attention=tiled takes any"));
  job.mutable_parallel()->set_attention(v1::ParallelSpec::ATTENTION_TILED);
  EXPECT_THAT(SubmitJob("tiled", job), IsOk());
}

TEST_F(ControllerPlanning, RefusesWhatTheSmallestWorkerHasNoRoomFor) {
  Worker large, small;
  large.name = "cpu-0";
  small.name = "cpu-1";
  large.memory_bytes = 100'000'000'000;
  small.memory_bytes = 2'000'000'000;
  EXPECT_THAT(Connect(large), IsOk());
  EXPECT_THAT(Connect(small), IsOk());
  v1::JobSpec job = SmallJob("a", 2);
  job.mutable_model()->set_layers(10);
  job.mutable_model()->set_hidden(4096);
  job.mutable_model()->set_ffn(16384);  // 16 bytes of 12.6 million and more elements a layer
  EXPECT_THAT(
      SubmitJob("weights", job),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               testing::StartsWith(
                   "parallel.degree: found 2, with which each rank needs at least 21.5 GB; "
                   "of the 2 workers with most memory the smallest has 2.0 GB; expected more ranks, ")));
  job = SmallJob("b", 2);
  job.mutable_data()->set_sequence_length(1 << 24);
  EXPECT_THAT(SubmitJob("tokens", job),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the smallest has 2.0 GB")));
  job.mutable_data()->set_sequence_length(1 << 16);
  EXPECT_THAT(SubmitJob("small", job), IsOk());
  job.mutable_data()->set_sequence_length(1 << 24);
  job.mutable_parallel()->set_degree(1);
  EXPECT_THAT(SubmitJob("for the large one", job), IsOk());
  job.mutable_train()->set_sequences_per_step(1 << 30);  // answered at once all the same
  EXPECT_THAT(SubmitJob("for a long time", job), IsOk());
}

TEST_F(ControllerPlanning, PlansAutomaticDegreeOverAllWorkers) {
  Workers(3);
  v1::JobSpec job = SmallJob("a", 1);
  job.mutable_parallel()->set_degree(0);
  const auto status = SubmitJob("r", job);
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(status->plan().degree(), 3);
}

TEST_F(ControllerPlanning, RefusesMoreRanksThanWorkersAndNamesBoth) {
  Workers(4);
  EXPECT_THAT(SubmitJob("r", SmallJob("a", 8)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "parallel.degree: found 8, expected at most 4, the number of registered workers"));
}

TEST_F(ControllerPlanning, PlansByTheWorkersProfilesAndKeepsWhatIsExpected) {
  OnTwoNodes();
  v1::JobSpec job = SmallJob("a", 1);
  job.mutable_parallel()->set_degree(0);
  job.mutable_parallel()->set_recompute(v1::ParallelSpec::RECOMPUTE_AUTO);
  const auto status = SubmitJob("r", job);
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(status->prediction().profile(), "worker");
  EXPECT_GT(status->prediction().step_seconds(), 0);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(jobs_.Get(status->id())->prediction(),
                                                                 status->prediction()));

  job.mutable_model()->set_layers(400);
  job.mutable_model()->set_hidden(16384);
  job.mutable_model()->set_ffn(65536);
  EXPECT_THAT(SubmitJob("large", job),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("and a worker has 82.4 GB to give")));
}

TEST_F(ControllerPlanning, ARingStaysOnOneNodeAndItsLinksGoIntoTheProfilesOfItsWorkers) {
  std::vector<Worker> workers = OnTwoNodes();
  const v1::JobStatus pair = Submit(2);
  EXPECT_EQ(pair.ranks(0).worker(), "gpu-0");
  EXPECT_EQ(pair.ranks(1).worker(), "gpu-2");
  v1::WorkerEvent measured;
  measured.mutable_link()->set_bytes_per_second(7e9);
  ASSERT_THAT(Say(workers[2], measured, pair.attempt(), 1), IsOk());
  EXPECT_EQ(ProfileOf("gpu-2").link().bytes_per_second(), 7e9);
  EXPECT_EQ(ProfileOf("gpu-2").node_link().bytes_per_second(),
            Profile("h100-80g").node_link().bytes_per_second());
  EXPECT_EQ(ProfileOf("gpu-0").link().bytes_per_second(), Profile("h100-80g").link().bytes_per_second());
  for (int r = 0; r < 2; ++r) {
    ASSERT_THAT(Say(workers[2 * r], Started(), pair.attempt(), r), IsOk());
    ASSERT_THAT(Say(workers[2 * r], Ended(true), pair.attempt(), r), IsOk());
  }

  const v1::JobStatus all = Submit(4);
  std::vector<std::string> order;
  for (const v1::RankStatus& rank : all.ranks()) order.push_back(rank.worker());
  EXPECT_THAT(order, ElementsAre("gpu-0", "gpu-2", "gpu-1", "gpu-3"));
  measured.mutable_link()->set_bytes_per_second(3e9);
  ASSERT_THAT(Say(workers[2], measured, all.attempt(), 1),
              IsOk());  // its next neighbour is on the other node
  EXPECT_EQ(ProfileOf("gpu-2").link().bytes_per_second(), 7e9);
  EXPECT_EQ(ProfileOf("gpu-2").node_link().bytes_per_second(), 3e9);
  workers[2].incarnation = "second";  // what was measured outlives the daemon
  ASSERT_THAT(Connect(workers[2]), StatusIs(absl::StatusCode::kAlreadyExists));
  workers[2].incarnation = "first";
  ASSERT_THAT(Connect(workers[2], {{all.attempt(), 1}}), IsOk());
  EXPECT_EQ(ProfileOf("gpu-2").node_link().bytes_per_second(), 3e9);
}

TEST_F(ControllerPlanning, EveryRingHasANodeOfItsOwn) {
  OnTwoNodes();
  v1::JobSpec job = SmallJob("rings", 2);
  job.mutable_parallel()->set_rings(2);
  job.mutable_train()->set_sequences_per_step(2);
  const auto submitted = SubmitJob("r", job);
  ASSERT_THAT(submitted, IsOk());
  controller_.Tick();
  const v1::JobStatus status = *jobs_.Get(submitted->id());
  std::vector<std::string> order;
  for (const v1::RankStatus& rank : status.ranks()) order.push_back(rank.worker());
  EXPECT_THAT(order, ElementsAre("gpu-0", "gpu-2", "gpu-1", "gpu-3"));
}

}  // namespace
}  // namespace metp
