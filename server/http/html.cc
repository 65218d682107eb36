#include "server/http/html.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "proto/support/version.h"

namespace metp {
namespace {

constexpr int kRefreshSeconds = 5;

}  // namespace

std::string Escape(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Other control characters are no text of an HTML document.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

Markup Text(const std::string& text) { return {Escape(text)}; }

Markup Code(const std::string& text) { return {absl::StrCat("<code>", Escape(text), "</code>")}; }

Markup Link(const std::string& url, const std::string& text) {
  if (!absl::StartsWith(url, "http://") && !absl::StartsWith(url, "https://") && !absl::StartsWith(url, "/"))
    return Text(text);
  return {absl::StrCat("<a href=\"", Escape(url), "\">", Escape(text), "</a>")};
}

Markup JobLink(const std::string& id) { return Link("/jobs/" + id, id); }

Markup Badge(const std::string& kind, const std::string& word) {
  return {absl::StrCat("<span class=\"badge ", kind, "\"><i></i>", Escape(word), "</span>")};
}

Markup Meter(double part, const std::string& kind) {
  return {
      absl::StrFormat("<span class=\"meter %s\" aria-hidden=\"true\"><i style=\"width:%.1f%%\"></i></span>",
                      kind, 100 * std::clamp(part, 0.0, 1.0))};
}

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

double Seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::string Utc(double unix_seconds) {
  const std::time_t time = static_cast<std::time_t>(unix_seconds);
  std::tm parts = {};
  gmtime_r(&time, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

Markup Ago(const google::protobuf::Timestamp& time, std::chrono::system_clock::time_point now) {
  const double passed = std::max(0.0, Seconds(now) - Seconds(time));
  return {absl::StrCat("<time title=\"", Utc(Seconds(time)), "\">",
                       passed < 60 ? absl::StrFormat("%.0f s", passed) : Duration(passed), " ago</time>")};
}

HtmlTable::HtmlTable(const std::string& caption, std::vector<Column> columns) : columns_(std::move(columns)) {
  absl::StrAppend(&html_, "<div class=\"scroll\"><table><caption>", Escape(caption), "</caption><thead><tr>");
  for (const Column& column : columns_) {
    absl::StrAppend(&html_, "<th scope=\"col\"", column.number ? " class=\"n\"" : "", ">",
                    Escape(column.name), "</th>");
  }
  html_ += "</tr></thead><tbody>\n";
}

void HtmlTable::Row(const std::vector<Markup>& cells) {
  html_ += "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    const char* style = columns_[i].number ? " class=\"n\"" : "";
    if (i == 0) {
      absl::StrAppend(&html_, "<th scope=\"row\"", style, ">", cells[i].html, "</th>");
    } else {
      absl::StrAppend(&html_, "<td", style, ">", cells[i].html, "</td>");
    }
  }
  html_ += "</tr>\n";
  ++rows_;
}

std::string HtmlTable::Html(size_t more, const std::string& where) const {
  std::string html = html_ + "</tbody></table></div>";
  if (more > 0) {
    absl::StrAppend(&html, "<p class=\"more\">and ", Grouped(static_cast<int64_t>(more)), " more",
                    where.empty() ? "" : ": ", where.empty() ? "" : Code(where).html, "</p>");
  }
  return html + "\n";
}

std::string Section(const std::string& id, const std::string& heading, const std::string& html,
                    const std::string& aside) {
  return absl::StrCat("<section aria-labelledby=\"", id, "\"><div class=\"head\"><h2 id=\"", id, "\">",
                      Escape(heading), "</h2>", aside.empty() ? "" : "<p>", aside,
                      aside.empty() ? "" : "</p>", "</div>\n", html, "</section>\n");
}

std::string Empty(const std::string& sentence, const std::string& command) {
  return absl::StrCat("<p class=\"empty\">", Escape(sentence), command.empty() ? "" : " ",
                      command.empty() ? "" : Code(command).html, "</p>\n");
}

std::string Tile(const std::string& label, const Markup& value, const Markup& note, const Markup& meter) {
  return absl::StrCat("<div class=\"tile\"><dt>", Escape(label), "</dt><dd><b>", value.html, "</b>",
                      meter.html, "<small>", note.html, "</small></dd></div>\n");
}

std::string Page(const Frame& frame, const std::string& body) {
  const bool refresh = frame.refreshes && !frame.paused;
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  if (refresh) absl::StrAppend(&html, "<meta http-equiv=\"refresh\" content=\"", kRefreshSeconds, "\">\n");
  absl::StrAppend(
      &html, "<title>", Escape(frame.title), " · METP</title>\n<style>", kStyle,
      "</style></head><body>\n<a class=\"skip\" href=\"#main\">Skip to content</a>\n"
      "<header><a class=\"brand\" href=\"/\">"
      "<svg viewBox=\"0 0 24 24\" aria-hidden=\"true\"><circle cx=\"12\" cy=\"12\" r=\"8\"/>"
      "<circle class=\"dot\" cx=\"12\" cy=\"4\" r=\"3.4\"/><circle class=\"dot\" cx=\"18.9\" cy=\"16\" "
      "r=\"3.4\"/><circle class=\"dot\" cx=\"5.1\" cy=\"16\" r=\"3.4\"/></svg>METP</a>\n<p>coordinator ",
      Code(frame.coordinator).html, frame.up, "</p>\n<nav aria-label=\"Pages\">");
  if (frame.refreshes) {
    absl::StrAppend(&html, "<span>", refresh ? absl::StrCat("every ", kRefreshSeconds, " s") : "paused",
                    "</span><a href=\"", Escape(frame.path), refresh ? "?refresh=0" : "", "\">",
                    refresh ? "Pause" : "Refresh", "</a>");
  }
  absl::StrAppend(&html, "<a href=\"/metrics\">Metrics</a><a href=\"/status.txt\">Text</a></nav></header>\n",
                  "<main id=\"main\">\n", body, "</main>\n<footer>metp-coordinator ", kVersion,
                  " · times in UTC</footer></body></html>\n");
  return html;
}

}  // namespace metp
