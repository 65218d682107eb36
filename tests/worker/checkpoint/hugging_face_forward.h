#pragma once

// What transformers computes from an exported folder, in double precision and as plainly as possible. Written from the
// conventions of its classes (Linear [out, in], Conv1D [in, out], rotate_half, gelu_new), not from those of this project, so
// that an export that computes the same loss as training does is right. Test code; throws std::runtime_error.

#include <cstdint>
#include <string>
#include <vector>

namespace metp::testing {

/// The mean cross-entropy of `sequences` sequences of tokens and targets, one after the other, over the targets that are not
/// negative; by the folder's config.json and model.safetensors.
double HuggingFaceLoss(const std::string& folder, int sequences, const std::vector<double>& tokens,
                       const std::vector<double>& targets);

}  // namespace metp::testing
