#pragma once

// What a person reads when a job has ended: the loss curve, speed, memory by rank, overlap by pass, where the
// metrics are. Pure: text from what was measured; what was not measured is not shown.

#include <string>
#include <vector>

#include "client/curve.h"
#include "metp/v1/status.pb.h"

namespace metp {

/// `http_url`: the coordinator's; may be empty.
std::string Summary(const v1::JobStatus& status, const std::vector<v1::StepPoint>& steps,
                    const std::string& http_url, const CurveStyle& style);

// Its parts, also used by describe.
std::string MemoryTable(const v1::JobStatus& status);
/// How the job will run and, where its workers' profiles are known, what that is expected to cost: some lines.
std::string PlanLines(const v1::JobStatus& status);

std::string OverlapTable(const v1::JobStatus& status);
std::string RankTable(const v1::JobStatus& status);

}  // namespace metp
