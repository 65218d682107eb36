#pragma once

// Which files a job reads, in which order. The order depends on names alone, so that every rank finds the
// same.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace metp {

/// The files of `sources` in order. A file stands for itself, as often as it is named; a folder for its
/// regular files, recursively, sorted by path, component by component. Links are followed; within one folder
/// each real file and each real folder counts once, under the first path that leads to it, so that loops end.
/// Pipes, devices, sockets and links that lead nowhere are skipped inside a folder. NotFound "/x: no such
/// file or folder (data.source)"; InvalidArgument for a folder without a file, a folder that cannot be
/// listed, and a source that is neither file nor folder.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::vector<std::string>& sources);

}  // namespace metp
