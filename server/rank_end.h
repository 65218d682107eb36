#pragma once

// How ranks come to their ends, and from what a worker says about one to the sentence and the kind that the job table weighs.
// Pure.

#include <string>

#include "metp/v1/worker_service.pb.h"

namespace metp {

/// How a rank, and with it an attempt, came to its end; from the weakest to the strongest cause. Of several ends the
/// strongest is the attempt's, of those the earliest. Kept in the store by number.
enum class EndKind {
  kDone = 0,         // all steps done
  kStopped = 1,      // by what the coordinator had asked for
  kConsequence = 2,  // complains of a neighbour or a time-out
  kInterrupted = 3,  // it, its worker or a neighbour was asked to leave, and it did
  kError = 4,        // says what went wrong with itself
  kDeath = 5,        // said nothing; as strong as kError
};
inline constexpr char kDoneEnd[] = "done";  // the message of kDone

struct RankEnd {
  EndKind kind = EndKind::kDone;
  std::string message;  // full sentence: "rank 2 on worker cpu-3: killed by signal 9 (SIGKILL)"
  bool final = false;   // trying again would end in the same way
};

/// `a` outranks `b` as a cause.
bool Outranks(EndKind a, EndKind b);

RankEnd Explain(const std::string& worker, int rank, const v1::RankEnded& ended);

}  // namespace metp
