#include "server/http/site.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/support/metric_page.h"
#include "server/http/job_page.h"
#include "server/http/metrics.h"
#include "server/http/status_page.h"
#include "server/http/status_text.h"

namespace metp {
namespace {

bool WantsHtml(const HttpRequest& request) { return absl::StrContains(request.accept, "text/html"); }

HttpPage Html(std::string body, int code = 200) {
  return {.code = code,
          .type = "text/html; charset=utf-8",
          .body = std::move(body),
          // Nothing is loaded from anywhere, and nothing in a page runs.
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Vary", "Accept"}}};
}

}  // namespace

std::string WorkerTargets(const Registry& workers) {
  nlohmann::json targets = nlohmann::json::array();
  for (const v1::WorkerStatus& worker : workers.List()) {
    const std::string& url = worker.metrics_url();
    const size_t host = url.find("://") + 3;
    if (!absl::StartsWith(url, "http://") && !absl::StartsWith(url, "https://")) continue;
    const size_t path = std::min(url.find('/', host), url.size());
    nlohmann::json labels = {{"worker", worker.name()}};
    if (!worker.node().empty()) labels["node"] = worker.node();
    if (url.substr(path) != "/metrics" && path < url.size()) labels["__metrics_path__"] = url.substr(path);
    if (absl::StartsWith(url, "https://")) labels["__scheme__"] = "https";
    targets.push_back({{"targets", {url.substr(host, path - host)}}, {"labels", labels}});
  }
  // What is not UTF-8 in a name is replaced.
  return targets.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::map<std::string, HttpServer::Handler> SitePages(const Site& site) {
  const auto started = site.clock.Wall();
  const auto context = [site, started](const HttpRequest& request) {
    return PageContext{.jobs = site.jobs,
                       .workers = site.workers,
                       .coordinator = site.coordinator(),
                       .started = started,
                       .now = site.clock.Wall(),
                       .store_writable = site.store_writable(),
                       .paused = request.query == "refresh=0"};
  };
  std::map<std::string, HttpServer::Handler> pages;
  const auto text = [site](const HttpRequest&) {
    return HttpPage{.body = StatusText(site.jobs, site.workers)};
  };
  pages["/"] = [context, text](const HttpRequest& request) {
    return WantsHtml(request) ? Html(StatusPage(context(request))) : text(request);
  };
  pages["/jobs"] = pages["/"];
  pages["/status.txt"] = text;
  pages["/jobs/"] = [site, context](const HttpRequest& request) {
    const std::string reference = request.path.substr(request.path.rfind('/') + 1);
    const absl::StatusOr<std::string> found = site.jobs.Find(reference);
    const std::string id = found.value_or(reference);
    if (WantsHtml(request)) {
      const absl::StatusOr<std::string> page = JobPage(context(request), id);
      return page.ok() ? Html(*page) : Html(NoJobPage(context(request), id), 404);
    }
    const absl::StatusOr<std::string> page = found.ok() ? JobText(site.jobs, id) : found.status();
    return page.ok() ? HttpPage{.body = *page}
                     : HttpPage{.code = 404, .body = std::string(page.status().message()) + "\n"};
  };
  pages["/healthz"] = [](const HttpRequest&) { return HttpPage{.body = "ok\n"}; };
  pages["/metrics"] = [site, started](const HttpRequest&) {
    return HttpPage{.type = MetricPage::kContentType,
                    .body = CoordinatorMetrics(site.jobs, site.workers,
                                               {site.store_writable(), started, site.state_folder})};
  };
  pages["/sd/workers"] = [site](const HttpRequest&) {
    return HttpPage{.type = "application/json", .body = WorkerTargets(site.workers)};
  };
  return pages;
}

}  // namespace metp
