#pragma once

// From what a worker says about an ended rank to the sentence and the kind that the job table weighs. Pure.

#include <string>

#include "metp/v1/worker_service.pb.h"
#include "server/job_table.h"

namespace metp {

RankEnd Explain(const std::string& worker, int rank, const v1::RankEnded& ended);

}  // namespace metp
