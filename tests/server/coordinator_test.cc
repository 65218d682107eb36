// A whole coordinator in this process, spoken to over an in-process channel by clients and a scripted worker.

#include "server/coordinator.h"

#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "server/invariants.h"
#include "server/store/memory_store.h"
#include "tests/support/http_get.h"
#include "tests/support/jobs.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A worker daemon made of one stream. Its reads and writes are the test's.
class ScriptedWorker {
 public:
  ScriptedWorker(const std::shared_ptr<grpc::Channel>& channel, const std::string& name,
                 const std::string& incarnation = "first")
      : stub_(v1::WorkerService::NewStub(channel)), stream_(stub_->Session(&context_)) {
    v1::FromWorker message;
    message.mutable_hello()->set_name(name);
    message.mutable_hello()->set_incarnation(incarnation);
    message.mutable_hello()->set_metrics_url("http://127.0.0.1:1/metrics");
    stream_->Write(message);
  }
  ~ScriptedWorker() { context_.TryCancel(); }

  /// The next message of this kind; others are passed over.
  v1::ToWorker Await(v1::ToWorker::KindCase kind) {
    v1::ToWorker message;
    while (stream_->Read(&message)) {
      if (message.kind_case() == kind) return message;
    }
    ADD_FAILURE() << "the session ended";
    return message;
  }
  void Say(const std::string& attempt, int rank, v1::WorkerEvent event) {
    event.set_sequence(++sequence_);
    event.set_attempt(attempt);
    event.set_rank(rank);
    v1::FromWorker message;
    *message.mutable_events()->add_events() = event;
    stream_->Write(message);
  }
  grpc::Status End() {
    v1::ToWorker message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FromWorker, v1::ToWorker>> stream_;
  int64_t sequence_ = 0;
};

class CoordinatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.listen = config_.http = "127.0.0.1:0";
    config_.log_lines = 50;
    coordinator_ = std::make_unique<Coordinator>(config_, clock_, store_);
    ASSERT_THAT(coordinator_->Start(), IsOk());
    channel_ = coordinator_->InProcessChannel();
    stub_ = v1::JobService::NewStub(channel_);
  }
  void TearDown() override { EXPECT_THAT(Invariants().Check(coordinator_->jobs().Snapshot()), IsOk()); }

  grpc::Status Submit(const v1::JobSpec& job, v1::SubmitResponse& response,
                      const std::string& request_id = "r") {
    grpc::ClientContext context;
    v1::SubmitRequest request;
    request.set_request_id(request_id);
    *request.mutable_job() = job;
    return stub_->Submit(&context, request, &response);
  }
  /// Reads the watch to its end.
  std::vector<v1::WatchJobUpdate> Watch(const std::string& job, grpc::Status* status = nullptr) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job(job);
    const auto reader = stub_->WatchJob(&context, request);
    std::vector<v1::WatchJobUpdate> updates;
    v1::WatchJobUpdate update;
    while (reader->Read(&update)) updates.push_back(update);
    const grpc::Status end = reader->Finish();
    if (status != nullptr) *status = end;
    return updates;
  }

  CoordinatorConfig config_;
  RealClock clock_;
  MemoryStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> stub_;
};

v1::WorkerEvent Step(int step) {
  v1::WorkerEvent event;
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(1.0 / step);
  event.mutable_step()->set_step_seconds(1);
  return event;
}

v1::WorkerEvent Done() {
  v1::WorkerEvent event;
  event.mutable_ended()->mutable_result();
  event.mutable_ended()->set_clean(true);
  return event;
}

TEST_F(CoordinatorTest, CarriesAJobFromSubmitToTheEndOfItsWatch) {
  ScriptedWorker worker(channel_, "cpu-0");
  worker.Await(v1::ToWorker::kWelcome);
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit(SmallJob("job", 1, 3000), response).ok());
  EXPECT_EQ(response.status().id(), "job-1");
  auto watching = std::async(std::launch::async, [&] { return Watch("job"); });
  const std::string attempt = worker.Await(v1::ToWorker::kStart).start().start().attempt();
  v1::WorkerEvent started;
  started.mutable_started();
  worker.Say(attempt, 0, started);
  for (int step = 1; step <= 3000; ++step) worker.Say(attempt, 0, Step(step));
  worker.Say(attempt, 0, Done());

  for (const auto& updates : {watching.get(), Watch("job-1")}) {  // one early, one late
    int steps = 0;
    for (const v1::WatchJobUpdate& update : updates) {
      for (const v1::StepPoint& point : update.steps()) EXPECT_EQ(point.step(), ++steps);
    }
    EXPECT_EQ(steps, 3000);
    EXPECT_EQ(updates.back().status().state(), v1::JobStatus::SUCCEEDED);
  }
}

TEST_F(CoordinatorTest, SaysWhatIsWrongWithASubmission) {
  v1::SubmitResponse response;
  const grpc::Status too_many = Submit(SmallJob("job", 2), response);
  EXPECT_EQ(too_many.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(too_many.error_message(),
            "parallel.degree: found 2, expected at most 0, the number of registered workers");
  const grpc::Status bad = Submit(v1::JobSpec(), response);
  EXPECT_EQ(bad.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, KnowsNoJobThatDoesNotExist) {
  grpc::Status status;
  Watch("nobody", &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("nobody"));
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_job("nobody");
  v1::JobStatus job;
  EXPECT_EQ(stub_->CancelJob(&context, request, &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CoordinatorTest, StreamsOutputUntilTheJobEnds) {
  ScriptedWorker worker(channel_, "cpu-0");
  worker.Await(v1::ToWorker::kWelcome);
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit(SmallJob("job", 1), response).ok());
  const std::string attempt = worker.Await(v1::ToWorker::kStart).start().start().attempt();
  v1::WorkerEvent output;
  for (int i = 0; i < 120; ++i) output.mutable_output()->add_lines("line " + std::to_string(i));
  worker.Say(attempt, 0, output);
  worker.Await(v1::ToWorker::kAck);

  grpc::ClientContext context;
  v1::WatchLogsRequest request;
  request.set_job("job");
  request.set_follow(true);
  const auto reader = stub_->WatchLogs(&context, request);
  v1::LogChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_EQ(chunk.dropped(), 70);  // 120 lines, 50 kept
  ASSERT_EQ(chunk.lines_size(), 50);
  EXPECT_EQ(chunk.lines(0).text(), "line 70");
  v1::WorkerEvent more;
  more.mutable_output()->add_lines("last");
  worker.Say(attempt, 0, more);
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_EQ(chunk.lines(0).text(), "last");
  worker.Say(attempt, 0, Done());
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(CoordinatorTest, RefusesASessionThatDoesNotBeginWithHello) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Session(&context);
  v1::FromWorker heartbeat;
  heartbeat.mutable_heartbeat();
  stream->Write(heartbeat);
  v1::ToWorker message;
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, RefusesASecondWorkerOfOneName) {
  ScriptedWorker first(channel_, "cpu-0"), second(channel_, "cpu-0", "second");
  // One of them is first; which is the threads' choice.
  ScriptedWorker third(channel_, "cpu-0", "third");
  EXPECT_EQ(third.End().error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(CoordinatorTest, ServesPages) {
  ScriptedWorker worker(channel_, "cpu-0");
  worker.Await(v1::ToWorker::kWelcome);
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit(SmallJob("job", 1), response).ok());
  const std::string attempt = worker.Await(v1::ToWorker::kStart).start().start().attempt();
  worker.Say(attempt, 0, Step(1));
  worker.Await(v1::ToWorker::kAck);
  const std::string base = "http://" + coordinator_->http_address();
  EXPECT_EQ(HttpGet(base + "/healthz").code, 200);
  EXPECT_EQ(HttpGet(base + "/nothing").code, 404);
  EXPECT_THAT(HttpGet(base + "/").body, HasSubstr("job-1"));
  EXPECT_THAT(HttpGet(base + "/jobs/job-1").body, HasSubstr("job-1"));
  EXPECT_EQ(HttpGet(base + "/jobs/none").code, 404);
  EXPECT_EQ(HttpGet(base + "/healthz/more").code, 404);
  EXPECT_THAT(HttpGet(base + "/sd/workers").body, HasSubstr("\"127.0.0.1:1\""));
  const HttpAnswer metrics = HttpGet(base + "/metrics");
  EXPECT_EQ(metrics.code, 200);
  EXPECT_THAT(metrics.body, HasSubstr("metp_workers{state=\"ready\"} 1\n"));
  EXPECT_THAT(metrics.body, HasSubstr("metp_jobs{state=\"starting\"} 1\n"));
  EXPECT_THAT(metrics.body, HasSubstr("metp_job_step{job=\"job-1\"} 1\n"));
  worker.Say(attempt, 0, Done());
  Watch("job");
  EXPECT_THAT(HttpGet(base + "/metrics").body, Not(HasSubstr("metp_job_step{")));
}

v1::WorkerEvent TracedStep(int step) {
  v1::WorkerEvent event;
  event.mutable_trace()->set_step(step);
  event.mutable_trace()->add_spans()->set_track("step");
  event.mutable_trace()->set_last(true);
  return event;
}

TEST_F(CoordinatorTest, StreamsATraceUntilItIsWhole) {
  const auto trace = [&](grpc::ClientContext& context, int steps) {
    v1::TraceJobRequest request;
    request.set_job("job");
    request.set_steps(steps);
    return stub_->TraceJob(&context, request);
  };
  const auto refused = [&](int steps) {
    grpc::ClientContext context;
    const auto reader = trace(context, steps);
    v1::TraceChunk chunk;
    EXPECT_FALSE(reader->Read(&chunk));
    return reader->Finish();
  };
  EXPECT_EQ(refused(1).error_code(), grpc::StatusCode::NOT_FOUND);
  ScriptedWorker worker(channel_, "cpu-0");
  worker.Await(v1::ToWorker::kWelcome);
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit(SmallJob("job", 1), response).ok());
  const std::string attempt = worker.Await(v1::ToWorker::kStart).start().start().attempt();
  EXPECT_EQ(refused(1).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::WorkerEvent started;
  started.mutable_started();
  worker.Say(attempt, 0, started);
  worker.Await(v1::ToWorker::kAck);
  EXPECT_EQ(refused(0).error_message(), "steps: found 0, expected 1 to 16");
  EXPECT_EQ(refused(17).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  {  // a client that goes away
    grpc::ClientContext context;
    const auto reader = trace(context, 2);
    worker.Await(v1::ToWorker::kTrace);
    EXPECT_EQ(refused(1).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    worker.Say(attempt, 0, TracedStep(1));
    v1::TraceChunk chunk;
    ASSERT_TRUE(reader->Read(&chunk));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  grpc::Status end;
  int step = 2;
  do {
    grpc::ClientContext context;
    const auto reader = trace(context, 2);
    std::vector<int> steps;
    auto reading = std::async(std::launch::async, [&] {
      v1::TraceChunk chunk;
      while (reader->Read(&chunk)) {
        for (const v1::TracePart& part : chunk.parts()) steps.push_back(part.step());
      }
      return reader->Finish();
    });
    while (reading.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
      worker.Say(attempt, 0, TracedStep(step++));
    end = reading.get();
    if (!end.ok()) continue;
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(steps[1], steps[0] + 1);
  } while (end.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);  // until it has heard of that
  EXPECT_TRUE(end.ok()) << end.error_message();

  grpc::ClientContext context;
  const auto reader = trace(context, 2);
  worker.Await(v1::ToWorker::kTrace);
  worker.Say(attempt, 0, Done());
  v1::TraceChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(CoordinatorTest, StopsWithOpenCalls) {
  ScriptedWorker worker(channel_, "cpu-0");
  worker.Await(v1::ToWorker::kWelcome);
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit(SmallJob("job", 1), response).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job("job");
  const auto watching = stub_->WatchJob(&context, request);
  v1::WatchJobUpdate update;
  ASSERT_TRUE(watching->Read(&update));
  worker.Await(v1::ToWorker::kStart);
  coordinator_->Stop();
  while (watching->Read(&update)) {
  }
  EXPECT_EQ(watching->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(worker.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CoordinatorTest, RefusesAPortThatIsTaken) {
  CoordinatorConfig config = config_;
  config.listen = coordinator_->address();
  EXPECT_THAT(Coordinator(config, clock_, store_).Start(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(coordinator_->address())));
  config = config_;
  config.http = coordinator_->http_address();
  EXPECT_THAT(Coordinator(config, clock_, store_).Start(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(coordinator_->http_address())));
}

}  // namespace
}  // namespace metp
