#include "worker/backend/sim/sim_host_link.h"

#include <algorithm>

#include "worker/backend/sim/sim_backend.h"

namespace metp::sim {

uint64_t SimHostLink::Post(Stream& stream, int64_t bytes, const Event& after) {
  const double seconds = MessageSeconds(link_, static_cast<double>(bytes));
  stream.free = std::max(stream.free, after.seconds) + seconds;
  times_.copying += seconds;
  stream.done.push_back(stream.free);
  return stream.done.size();
}

void SimHostLink::Await(CopyId copy) {
  const double wait = (copy.in ? in_ : out_).done.at(copy.number - 1) - backend_.now();
  if (wait <= 0) return;
  times_.exposed += wait;
  backend_.Advance(wait);
}

}  // namespace metp::sim
