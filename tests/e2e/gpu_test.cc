// A cluster of CPU workers and one with a GPU, which the emulated device takes the part of: each job's ranks are on devices of
// one kind.

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/e2e/small_job.h"
#include "tests/support/fake_gpus.h"

namespace metp {
namespace {

using ::testing::HasSubstr;

class CudaCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("METP_CUDA_MODULE", Cluster::Program("metp-cuda-emulated.so").c_str(), 1);
    // A GPU of its own: tests run beside each other, and a worker locks the one that it has.
    char uuid[64];
    std::snprintf(uuid, sizeof uuid, "GPU-%08x-aaaa-bbbb-cccc-000000000000", static_cast<unsigned>(getpid()));
    gpus_.gpus[0].uuid = uuid;
    gpus_.Write();
  }
  void TearDown() override {
    unsetenv("METP_CUDA_MODULE");
    std::filesystem::remove("/tmp/metp-" + std::to_string(geteuid()) + "/" + gpus_.gpus[0].uuid + ".lock");
  }
  /// The worker that has the GPU is the last one's.
  Cluster::Options WithOneGpu(int workers) const {
    return {.workers = workers, .worker_of = [workers](int i) -> std::vector<std::string> {
              if (i != workers - 1) return {};
              return {"--gpu", "0", "--nvml-library", testing::FakeGpus::library()};
            }};
  }

  testing::FakeGpus gpus_;
};

TEST_F(CudaCluster, TrainsAJobOnTheKindOfDeviceThatItAsksFor) {
  Cluster cluster(WithOneGpu(3));
  EXPECT_THAT(cluster.Ctl({"workers"}).out, HasSubstr("NVIDIA H200 " + gpus_.gpus[0].uuid.substr(0, 12)));
  const std::string file = WriteJob(cluster.folder(), 3);
  const auto submit = [&](const std::string& name, const std::string& degree, const std::string& device) {
    return cluster.Ctl({"submit", "-f", file, "--set", "name=" + name, "--set", "data.sequence_length=64",
                        "--set", "parallel.degree=" + degree, "--set", "device=" + device});
  };
  ASSERT_EQ(submit("auto", "1", "auto").code, 0);
  ASSERT_EQ(submit("cpus", "2", "cpu").code, 0);
  const Subprocess::Exit refused = submit("gpus", "2", "gpu");
  EXPECT_THAT(refused.error,
              HasSubstr("parallel.degree: found 2, expected at most 1, the number of registered "
                        "GPU workers"));
  for (const std::string job : {"auto", "cpus"}) {
    EXPECT_EQ(cluster.Ctl({"watch", job}).code, 0) << cluster.Ctl({"logs", job}).out;
  }
  EXPECT_EQ(cluster.JobField("auto", "ranks.0.worker"), "cpu-2");
  EXPECT_EQ(cluster.JobField("cpus", "ranks.0.worker"), "cpu-0");
  EXPECT_EQ(cluster.JobField("cpus", "ranks.1.worker"), "cpu-1");
  const std::vector<double> on_gpu = Losses(cluster, "auto"), on_cpus = Losses(cluster, "cpus");
  ASSERT_EQ(on_gpu.size(), 3u);
  ASSERT_EQ(on_cpus.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(on_gpu[i], on_cpus[i], 0.02);  // bf16 against fp32
}

TEST_F(CudaCluster, TracesARankOnAGpuInTheHostsTime) {
  Cluster cluster(WithOneGpu(1));
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  const auto watch = cluster.StartCtl({"submit", "-f", WriteJob(cluster.folder(), 100000), "--watch", "--set",
                                       "data.sequence_length=64", "--set", "parallel.degree=1"});
  ASSERT_NE(watch->ReadUntil("step 1/"), "");
  const Subprocess::Exit traced = cluster.Ctl({"trace", "small", "--steps", "2", "-o", "-"});
  ASSERT_EQ(traced.code, 0) << traced.error;
  const double seconds = now() - before;
  double compute = 0, all = 0;
  const nlohmann::json trace = nlohmann::json::parse(traced.out);
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const std::string name = event.at("name");
    (name.rfind("step ", 0) == 0 ? all : compute) += event.at("dur").get<double>() * 1e-6;
    EXPECT_LE(event.at("ts").get<double>() * 1e-6, seconds) << name;
  }
  EXPECT_GT(compute, 0);
  EXPECT_LE(compute, all * 1.001);
  EXPECT_LT(all, seconds);
  cluster.Ctl({"cancel", "small"});
  EXPECT_EQ(watch->Wait().code, 4);
}

TEST_F(CudaCluster, AWorkerWhoseGpuIsLostLeaves) {
  Cluster cluster(WithOneGpu(1));
  gpus_.gpus[0].error = 15;
  gpus_.Write();
  const std::string file = WriteJob(cluster.folder(), 1);
  EXPECT_EQ(cluster.Ctl({"submit", "-f", file, "--set", "parallel.degree=1"}).code, 0);
  const Subprocess::Exit exit = cluster.worker(0).Wait();
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.error,
              HasSubstr("its GPU does not answer: nvmlDeviceGetMemoryInfo_v2: GPU is lost; it has "
                        "to be reset"));
  EXPECT_EQ(cluster.JobField("small", "state"), "QUEUED");  // it waits for another
}

TEST_F(CudaCluster, SaysThatTheModuleForGpusIsMissing) {
  setenv("METP_CUDA_MODULE", "/nowhere/metp-cuda.so", 1);
  Cluster cluster(WithOneGpu(1));
  const std::string file = WriteJob(cluster.folder(), 1);
  const Subprocess::Exit watch =
      cluster.Ctl({"submit", "-f", file, "--watch", "--set", "parallel.degree=1", "--set", "max_restarts=0"});
  EXPECT_NE(watch.code, 0);
  EXPECT_THAT(watch.error + watch.out, HasSubstr("/nowhere/metp-cuda.so"));
}

}  // namespace
}  // namespace metp
