#pragma once

// All simulated workers: a clock thread that makes them speak, and what they have seen of the coordinator. A session that ends
// although nobody asked for it is a failure, and is soon dialled again. All methods belong to one thread, the benchmark's.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "metp/v1/worker_service.grpc.pb.h"
#include "proto/support/mutex.h"
#include "tests/bench/coordinator/sim_worker.h"

namespace metp::bench {

class Fleet final : public Surroundings {
 public:
  /// `connections`: the workers share so many.
  Fleet(const std::string& coordinator, int workers, int connections);
  ~Fleet() override;

  /// Of a stretch of time.
  struct Window {
    int64_t made = 0, taken = 0;      // step reports
    std::vector<double> ack_seconds;  // of every event, from when it was made to when it was acknowledged
  };
  void BeginWindow() METP_EXCLUDES(mutex_);
  Window EndWindow() METP_EXCLUDES(mutex_);

  /// Workers for which it holds.
  int Count(bool (SimWorker::*holds)() const) const;
  void ForgetSteps();
  /// Sessions may end from now on.
  void AllowBreaks() METP_EXCLUDES(mutex_);
  /// Why a session ended that should not have; empty: none did.
  std::string failure() const METP_EXCLUDES(mutex_);
  SimWorker& worker(int number) { return *workers_[static_cast<size_t>(number)]; }

 private:
  enum class Act { kDial, kBeat, kStep };
  struct Due {
    Time at;
    int worker = 0;
    Act act = Act::kBeat;
    bool operator>(const Due& other) const { return at > other.at; }
  };

  Time FirstStep(const std::string& attempt) override METP_EXCLUDES(mutex_);
  void StepAt(int worker, Time due) override METP_EXCLUDES(mutex_);
  void Acknowledged(const std::vector<double>& after, int steps) override METP_EXCLUDES(mutex_);
  void SessionOver(int worker, const grpc::Status& status) override METP_EXCLUDES(mutex_);

  void Run() METP_EXCLUDES(mutex_);
  void Do(const Due& due, Time now) METP_EXCLUDES(mutex_);
  void Add(const Due& due) METP_EXCLUDES(mutex_);
  Time Soon(std::chrono::milliseconds within) METP_REQUIRES(mutex_);

  std::vector<std::unique_ptr<v1::WorkerService::Stub>> stubs_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_ METP_GUARDED_BY(mutex_);
  std::map<std::string, Time> first_steps_ METP_GUARDED_BY(mutex_);  // by attempt
  std::mt19937 random_ METP_GUARDED_BY(mutex_){1};
  Window window_ METP_GUARDED_BY(mutex_);
  bool window_open_ METP_GUARDED_BY(mutex_) = false;
  bool breaks_allowed_ METP_GUARDED_BY(mutex_) = false;
  bool quit_ METP_GUARDED_BY(mutex_) = false;
  int sessions_ METP_GUARDED_BY(mutex_) = 0;  // that are not over
  std::string failure_ METP_GUARDED_BY(mutex_);
  std::thread clock_;
};

}  // namespace metp::bench
