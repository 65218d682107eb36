#include "worker/comm/gloo/gloo_neighbours.h"

#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

using Clock = std::chrono::steady_clock;

std::string Key(int from, int to) { return absl::StrCat("ring/", from, "/", to); }

std::chrono::milliseconds Left(Clock::time_point deadline) {
  return std::max(std::chrono::milliseconds(1),
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooNeighbours>> GlooNeighbours::Connect(int rank, int size,
                                                                        const std::string& address,
                                                                        Rendezvous& rendezvous,
                                                                        std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  std::unique_ptr<GlooNeighbours> self(new GlooNeighbours(rank, size));
  try {
    gloo::transport::tcp::attr attr;
    attr.hostname = address;
    self->device_ = gloo::transport::tcp::CreateDevice(attr);
    for (int peer : self->peers()) {
      const auto context = self->contexts_[peer] = self->device_->createContext(rank, size);
      // A pair waits five times its context's time-out for its connection.
      context->setTimeout(std::max(std::chrono::milliseconds(1), timeout / 5));
      context->createPair(peer);
    }
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("rank ", rank, " cannot listen on ", address, ": ", e.what(),
                                               "; give a local address that the neighbours can reach"));
  }

  for (int peer : self->peers()) {
    const std::vector<char> bytes = self->context(peer).getPair(peer)->address().bytes();
    METP_RETURN_IF_ERROR(rendezvous.Put(Key(rank, peer), std::string(bytes.begin(), bytes.end())));
  }
  // Edge e is the one between ranks e and e + 1.
  std::vector<int> order = self->peers();
  const auto edge = [&](int peer) { return peer == self->next() ? rank : peer; };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return edge(a) < edge(b); });
  for (int peer : order) {
    const absl::StatusOr<std::string> bytes = rendezvous.Get(Key(peer, rank), Left(deadline));
    if (!bytes.ok()) {
      return absl::Status(bytes.status().code(), absl::StrCat("rank ", rank, " has no address of rank ", peer,
                                                              ": ", std::string(bytes.status().message())));
    }
    try {
      self->context(peer).getPair(peer)->connect(std::vector<char>(bytes->begin(), bytes->end()));
    } catch (const std::exception& e) {
      const std::string what = absl::StrCat("rank ", rank, " cannot connect to rank ", peer, ": ", e.what());
      return Clock::now() >= deadline ? absl::DeadlineExceededError(what) : absl::UnavailableError(what);
    }
  }
  return self;
}

GlooNeighbours::~GlooNeighbours() {
  // The contexts' pairs refer to the device without owning it.
  contexts_.clear();
  device_.reset();
}

std::vector<int> GlooNeighbours::peers() const {
  return next() == previous() ? std::vector<int>{next()} : std::vector<int>{previous(), next()};
}

void GlooNeighbours::Close() {
  for (int peer : peers()) context(peer).getPair(peer)->close();
}

}  // namespace metp
