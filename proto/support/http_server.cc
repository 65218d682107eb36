#include "proto/support/http_server.h"

#include <utility>
#include <vector>

#include "CivetServer.h"
#include "absl/strings/str_cat.h"

namespace metp {
namespace {

const char* Reason(int code) { return code == 200 ? "OK" : code == 404 ? "Not Found" : "Error"; }

}  // namespace

class HttpServer::Impl : public CivetHandler {
 public:
  Impl(const std::vector<std::string>& options, std::map<std::string, Handler> pages)
      : pages_(std::move(pages)), server_(options) {
    server_.addHandler("/", this);
  }
  ~Impl() override { server_.close(); }

  bool handleGet(CivetServer* server, mg_connection* connection) override { return Answer(connection, true); }
  bool handleHead(CivetServer* server, mg_connection* connection) override {
    return Answer(connection, false);
  }
  int port() { return server_.getListeningPorts().at(0); }

 private:
  bool Answer(mg_connection* connection, bool with_body) {
    const mg_request_info* info = mg_get_request_info(connection);
    const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
    const HttpRequest request = {text(info->local_uri), text(info->query_string),
                                 text(mg_get_header(connection, "Accept"))};
    const Handler* page = Find(request.path);
    const HttpPage answer = page != nullptr ? (*page)(request) : HttpPage{.code = 404, .body = "not found\n"};
    std::string head = absl::StrCat(
        "HTTP/1.1 ", answer.code, " ", Reason(answer.code), "\r\nContent-Type: ", answer.type,
        "\r\nContent-Length: ", answer.body.size(), "\r\nCache-Control: no-store\r\nConnection: close\r\n");
    for (const auto& [name, value] : answer.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
    head += "\r\n";
    mg_write(connection, head.data(), head.size());
    if (with_body) mg_write(connection, answer.body.data(), answer.body.size());
    return true;
  }

  /// The page of this path, or the one above it.
  const Handler* Find(const std::string& path) const {
    auto page = pages_.find(path);
    if (page == pages_.end()) page = pages_.find(path.substr(0, path.rfind('/') + 1));
    return page == pages_.end() || (page->first == "/" && path != "/") ? nullptr : &page->second;
  }

  const std::map<std::string, Handler> pages_;
  CivetServer server_;
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              std::map<std::string, Handler> pages) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == listen.size() ||
      listen.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("HTTP address: found '", listen, "', expected HOST:PORT"));
  }
  std::unique_ptr<HttpServer> server(new HttpServer());
  // A connection that says nothing holds a thread until its time is up: there are some to spare, and the time is short.
  const std::vector<std::string> options = {
      "listening_ports",          listen, "num_threads", "16", "request_timeout_ms", "5000",
      "enable_directory_listing", "no"};
  try {
    server->impl_ = std::make_unique<Impl>(options, std::move(pages));
    server->address_ = absl::StrCat(listen.substr(0, colon), ":", server->impl_->port());
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", listen,
                                               ": the port is in use, or the host is not this machine"));
  }
  return server;
}

}  // namespace metp
