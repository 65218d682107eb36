// metp_coordinator_bench: the coordinator's program under the load of a large cluster. Starts it with its state in a temporary
// folder, connects simulated workers (fleet.h), keeps them busy, queues jobs behind them, and measures what that costs and how
// soon clients and workers are answered; then lets one worker fall silent, and at last kills the coordinator and starts it
// again. It prints figures and checks none. The simulation shares the machine with what it measures: the coordinator's time is
// its own, latencies are of both.

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "proto/support/status_macros.h"
#include "server/config.h"
#include "tests/bench/coordinator/client.h"
#include "tests/bench/coordinator/fleet.h"
#include "tests/bench/coordinator/process.h"
#include "tests/support/cluster.h"

namespace metp::bench {
namespace {

constexpr std::chrono::seconds kPatience{300};
constexpr std::chrono::seconds kSettle{3};  // between queueing and the window

struct Options {
  int workers = 1000, jobs_running = 125, jobs_queued = 10000, degree = 8, seconds = 60;
  int connections = 16, submitters = 8;
  double rate = 5;
  std::string program = Cluster::Program("metp-coordinator"), output = "table";
};

double Since(Time start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Load {
 public:
  explicit Load(const Options& options) : options_(options), process_(options.program) {}

  absl::Status Run() {
    METP_RETURN_IF_ERROR(process_.Start());
    client_ = std::make_unique<Client>(process_.address());
    fleet_ = std::make_unique<Fleet>(process_.address(), options_.workers, options_.connections);
    METP_RETURN_IF_ERROR(Connect());
    METP_RETURN_IF_ERROR(Queue());
    METP_RETURN_IF_ERROR(Steady());
    METP_RETURN_IF_ERROR(Lose());
    return Restart();
  }
  void Print() const {
    if (options_.output == "json") {
      nlohmann::ordered_json json;
      for (const Figure& figure : figures_) json[figure.key] = figure.value;
      std::printf("%s\n", json.dump(2).c_str());
      return;
    }
    for (const Figure& figure : figures_) {
      std::printf("%-58s %10.*f %-5s %s\n", figure.what,
                  figure.value < 10 ? 3 : (figure.value < 1000 ? 1 : 0), figure.value, figure.unit,
                  figure.goal.c_str());
    }
  }

 private:
  struct Figure {
    const char *key, *what, *unit;
    double value;
    std::string goal;  // empty: none
  };
  void Note(const char* key, const char* what, const char* unit, double value, std::string goal = "") {
    figures_.push_back({key, what, unit, value, std::move(goal)});
  }

  /// Until it holds; the seconds that took, from `start` on.
  absl::StatusOr<double> Await(const char* what, Time start,
                               const std::function<absl::StatusOr<bool>()>& holds) {
    std::fprintf(stderr, "waiting until %s\n", what);
    while (true) {
      if (const std::string failure = fleet_->failure(); !failure.empty()) return absl::AbortedError(failure);
      METP_ASSIGN_OR_RETURN(const bool now, holds());
      if (now) return Since(start);
      if (Since(start) > static_cast<double>(kPatience.count()))
        return absl::DeadlineExceededError(absl::StrCat("in vain waited until ", what));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  /// Submits `count` jobs from `threads` threads: the k-th k / rate seconds after the start, or as soon as a thread is free
  /// (rate 0: at once). Returns the seconds that each took from when it was due.
  absl::StatusOr<std::vector<double>> Submit(const char* name, int count, int threads, double rate) {
    std::vector<double> seconds(static_cast<size_t>(count));
    std::vector<absl::Status> failures(static_cast<size_t>(threads));
    std::atomic<int> next = 0;
    const Time start = std::chrono::steady_clock::now();
    std::vector<std::thread> running;
    for (absl::Status& failure : failures) {
      running.emplace_back([&] {
        for (int k = next++; k < count && failure.ok(); k = next++) {
          Time due = std::chrono::steady_clock::now();
          if (rate > 0)
            due = start + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(k / rate));
          std::this_thread::sleep_until(due);
          const absl::StatusOr<std::string> id = client_->Submit(absl::StrCat(name, "-", k), options_.degree);
          failure = id.status();
          seconds[static_cast<size_t>(k)] = Since(due);
          if (k == count - 1 && id.ok()) last_job_ = *id;
        }
      });
    }
    for (std::thread& thread : running) thread.join();
    for (const absl::Status& failure : failures) {
      if (!failure.ok())
        return absl::Status(failure.code(),
                            absl::StrCat("submitting a job: ", std::string(failure.message())));
    }
    if (const std::string failure = fleet_->failure(); !failure.empty()) return absl::AbortedError(failure);
    return seconds;
  }

  absl::Status Connect() {
    const auto all = [this]() -> absl::StatusOr<bool> {
      return fleet_->Count(&SimWorker::welcomed) == options_.workers;
    };
    METP_RETURN_IF_ERROR(Await("all workers are connected", std::chrono::steady_clock::now(), all).status());
    METP_RETURN_IF_ERROR(Submit("running", options_.jobs_running, options_.submitters, 0).status());
    return Await("all their ranks report steps", std::chrono::steady_clock::now(),
                 [this] { return Stepping(0); })
        .status();
  }
  absl::StatusOr<bool> Stepping(int missing) const {
    return fleet_->Count(&SimWorker::stepping) >= options_.jobs_running * options_.degree - missing;
  }

  absl::Status Queue() {
    std::fprintf(stderr, "queueing %d jobs\n", options_.jobs_queued);
    const Time start = std::chrono::steady_clock::now();
    const double cpu = process_.CpuSeconds();
    METP_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                          Submit("queued", options_.jobs_queued, options_.submitters, 0));
    Note("queueing_seconds", "queueing them", "s", Since(start));
    Note("queueing_cpu", "  coordinator, cores", "", (process_.CpuSeconds() - cpu) / Since(start));
    Note("queueing_p99_ms", "  a submission, p99", "ms", 1e3 * Quantile(seconds, 0.99));
    return absl::OkStatus();
  }

  absl::Status Steady() {
    std::this_thread::sleep_for(kSettle);
    std::fprintf(stderr, "%d s of steady load\n", options_.seconds);
    const Time start = std::chrono::steady_clock::now();
    const double cpu = process_.CpuSeconds(), own = OwnCpuSeconds();
    fleet_->BeginWindow();
    METP_ASSIGN_OR_RETURN(const std::vector<double> submits,
                          Submit("steady", static_cast<int>(options_.seconds * options_.rate),
                                 options_.submitters, options_.rate));
    std::this_thread::sleep_until(start + std::chrono::seconds(options_.seconds));
    const Fleet::Window window = fleet_->EndWindow();
    const double seconds = Since(start);
    Note("cpu", "coordinator, cores", "", (process_.CpuSeconds() - cpu) / seconds, "< 1");
    Note("rss_mb", "  resident memory", "MB", process_.Megabytes("VmRSS"), "< 500");
    Note("peak_rss_mb", "  its peak", "MB", process_.Megabytes("VmHWM"), "< 500");
    Note("state_mb", "  its state on disk", "MB", process_.StateMegabytes());
    Note("submit_p50_ms", "a submission, p50", "ms", 1e3 * Quantile(submits, 0.5));
    Note("submit_p99_ms", "  p99", "ms", 1e3 * Quantile(submits, 0.99), "<= 50");
    Note("submit_max_ms", "  max", "ms", 1e3 * Quantile(submits, 1));
    Note("ack_p50_ms", "an event of a rank until it is acknowledged, p50", "ms",
         1e3 * Quantile(window.ack_seconds, 0.5));
    Note("ack_p99_ms", "  p99", "ms", 1e3 * Quantile(window.ack_seconds, 0.99));
    Note("steps_made", "step reports made per second", "", static_cast<double>(window.made) / seconds);
    Note("steps_taken", "  taken", "", static_cast<double>(window.taken) / seconds);
    Note("own_cpu", "simulation, cores", "", (OwnCpuSeconds() - own) / seconds);
    return absl::OkStatus();
  }

  absl::Status Lose() {
    SimWorker& silent = fleet_->worker(0);
    const Time last = silent.Silence();
    const auto lost = [&]() -> absl::StatusOr<bool> {
      METP_ASSIGN_OR_RETURN(const v1::ListWorkersResponse list,
                            client_->Call(&v1::JobService::Stub::ListWorkers, v1::ListWorkersRequest()));
      return std::any_of(list.workers().begin(), list.workers().end(), [&](const v1::WorkerStatus& worker) {
        return worker.name() == silent.name() && worker.state() == v1::WorkerStatus::LOST;
      });
    };
    const auto lease = CoordinatorConfig().lease;
    std::this_thread::sleep_until(last + lease - std::chrono::milliseconds(500));
    METP_ASSIGN_OR_RETURN(const double seconds, Await("a silent worker is lost", last, lost));
    const double limit = std::chrono::duration<double>(lease).count() + 1;
    Note("lost_seconds", "a worker that falls silent is lost after", "s", seconds,
         absl::StrFormat("<= %g", limit));
    return absl::OkStatus();
  }

  absl::Status Restart() {
    fleet_->AllowBreaks();
    std::fprintf(stderr, "killing the coordinator\n");
    process_.Kill();
    fleet_->ForgetSteps();
    const Time start = std::chrono::steady_clock::now();
    absl::StatusOr<v1::ListJobsResponse> page;
    absl::StatusOr<v1::JobStatus> job;
    double listed = 0, got = 0;
    std::thread asking(
        [&] {  // the process lives no longer than the thread that starts it, so that is this one
          page = client_->Call(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest(), true);
          listed = Since(start);
          v1::GetJobRequest request;
          request.set_job(last_job_);
          job = client_->Call(&v1::JobService::Stub::GetJob, request, /*patient=*/true);
          got = Since(start);
        });
    const absl::Status started = process_.Start();
    asking.join();
    METP_RETURN_IF_ERROR(started);
    METP_RETURN_IF_ERROR(page.status());
    METP_RETURN_IF_ERROR(job.status());
    Note("restart_list_seconds", "killed and started again: lists jobs after", "s", listed, "< 5");
    Note("restart_get_seconds", "  knows the last job after", "s", got, "< 5");
    METP_ASSIGN_OR_RETURN(const double back,
                          Await("all ranks report again", start, [this] { return Stepping(1); }));
    Note("restart_steps_seconds", "  all ranks report steps again after", "s", back);
    return absl::OkStatus();
  }

  const Options options_;
  CoordinatorProcess process_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Fleet> fleet_;
  std::string last_job_;
  std::vector<Figure> figures_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Measures the coordinator under the load of many workers and jobs"};
  app.add_option("--workers", options.workers, "simulated ones")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--jobs-running", options.jobs_running, "jobs that hold workers")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--jobs-queued", options.jobs_queued, "jobs behind them")
      ->check(CLI::Range(1, 10000000))
      ->capture_default_str();
  app.add_option("--degree", options.degree, "ranks of a job")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "of steady load")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_option("--rate", options.rate, "submissions per second then")
      ->check(CLI::Range(0.1, 1e4))
      ->capture_default_str();
  app.add_option("--connections", options.connections, "that the workers share; real ones have one each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--submitters", options.submitters, "threads that submit")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--program", options.program, "the coordinator's")
      ->check(CLI::ExistingFile)
      ->capture_default_str();
  app.add_option("-o,--output", options.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.jobs_running * options.degree > options.workers) {
    std::fprintf(
        stderr,
        "metp_coordinator_bench: found %d jobs of %d ranks, expected no more ranks than the %d workers\n",
        options.jobs_running, options.degree, options.workers);
    return 1;
  }
  Load load(options);
  if (const absl::Status status = load.Run(); !status.ok()) {
    std::fprintf(stderr, "metp_coordinator_bench: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  load.Print();
  return 0;
}

}  // namespace
}  // namespace metp::bench

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // errors are told by whoever meets them
  return metp::bench::Main(argc, argv);
}
