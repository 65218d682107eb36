#pragma once

// `metp-rank serve --fd N`: one rank as a child of its supervisor, with which it speaks metp/v1/rank.proto
// over descriptor N. Not meant to be started by hand.

namespace metp {

/// Returns the exit code: 0 all steps done, 1 failed (the RankResult sent before says why), 2 usage.
int ServeCommand(int argc, char** argv);

}  // namespace metp
