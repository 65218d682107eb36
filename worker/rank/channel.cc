#include "worker/rank/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

constexpr size_t kHeaderBytes = 4;

absl::Status SocketError(std::string_view what, int error) {
  const std::string message = absl::StrCat(std::string(what), ": ", std::strerror(error));
  if (error == EPIPE || error == ECONNRESET) return absl::UnavailableError(message);
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message) {
  const size_t length = message.ByteSizeLong();
  if (length > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", length, " bytes; the limit is ", kMaxFrameBytes));
  }
  std::string frame;
  for (size_t i = 0; i < kHeaderBytes; ++i) frame.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  message.AppendToString(&frame);
  return frame;
}

absl::StatusOr<std::optional<std::string>> FrameDecoder::Next() {
  if (buffer_.size() - begin_ < kHeaderBytes) return std::nullopt;
  uint32_t length = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<unsigned char>(buffer_[begin_ + i])) << (8 * i);
  }
  if (length > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a frame that claims ", length, " bytes; the limit is ",
                                                   kMaxFrameBytes, ": the peer speaks another protocol"));
  }
  if (buffer_.size() - begin_ - kHeaderBytes < length) return std::nullopt;
  std::string frame = buffer_.substr(begin_ + kHeaderBytes, length);
  begin_ += kHeaderBytes + length;
  if (begin_ == buffer_.size() || begin_ > (1u << 20)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

Channel::~Channel() { close(fd_); }

absl::Status Channel::Send(const google::protobuf::MessageLite& message) {
  METP_ASSIGN_OR_RETURN(const std::string frame, EncodeFrame(message));
  MutexLock lock(send_mutex_);
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SocketError("cannot send to the peer", errno);
    sent += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Channel::Receive(google::protobuf::MessageLite* message) {
  while (true) {
    METP_ASSIGN_OR_RETURN(const std::optional<std::string> frame, decoder_.Next());
    if (frame) {
      if (message->ParseFromString(*frame)) return true;
      return absl::DataLossError(
          absl::StrCat("a frame of ", frame->size(), " bytes that is no ", message->GetTypeName()));
    }
    char bytes[65536];
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EINTR) continue;
    // A peer that dies with something unread resets instead of closing.
    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
      if (decoder_.empty()) return false;
      return absl::DataLossError("the peer closed in the middle of a message");
    }
    if (n < 0) return SocketError("cannot receive from the peer", errno);
    decoder_.Append({bytes, static_cast<size_t>(n)});
  }
}

void Channel::Shutdown() { shutdown(fd_, SHUT_RDWR); }

}  // namespace metp
