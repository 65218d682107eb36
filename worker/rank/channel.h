#pragma once

// Protobuf messages over a connected stream socket: each is a 4-byte little-endian length and that many
// bytes. Used by both ends of the link between a supervisor and a rank. A Channel owns its descriptor.
//
// Threads: Send from any, one Receive at a time, Shutdown from any.

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/mutex.h"

namespace metp {

inline constexpr uint32_t kMaxFrameBytes = 64u << 20;

/// The frame of one message. InvalidArgument when the message passes kMaxFrameBytes.
absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message);

/// Cuts a stream of bytes, in whatever pieces it comes, into frames.
class FrameDecoder {
 public:
  void Append(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame's bytes, or nothing yet. InvalidArgument: a length above kMaxFrameBytes; the stream
  /// is useless from there on.
  absl::StatusOr<std::optional<std::string>> Next();
  /// True between frames.
  bool empty() const { return begin_ == buffer_.size(); }

 private:
  std::string buffer_;
  size_t begin_ = 0;  // of the bytes not handed out yet
};

class Channel {
 public:
  /// Takes over `fd`, a connected stream socket.
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Sends one whole message; blocks while the peer does not read. Unavailable: the peer's end is closed.
  absl::Status Send(const google::protobuf::MessageLite& message);

  /// Blocks for one message. False: the peer closed between two messages. DataLoss: closed inside one, or a
  /// frame that does not parse; InvalidArgument: a frame above the limit.
  absl::StatusOr<bool> Receive(google::protobuf::MessageLite* message);

  /// Ends both directions: a Receive that waits returns false, and the peer sees the end.
  void Shutdown();

 private:
  const int fd_;
  Mutex send_mutex_;
  FrameDecoder decoder_;  // the receiving thread's
};

}  // namespace metp
