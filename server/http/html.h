#pragma once

// HTML put together so that nothing that users wrote can become markup: what goes into a page is Markup, and text becomes
// that through Text alone. Pure.

#include <chrono>
#include <string>
#include <vector>

#include "google/protobuf/timestamp.pb.h"

namespace metp {

/// HTML that may stand in a page as it is.
struct Markup {
  std::string html;
};

/// For text and for attributes in double quotes.
std::string Escape(const std::string& text);
Markup Text(const std::string& text);
Markup Code(const std::string& text);
/// A link to another place; only the text if `url` is neither http, https nor a path here.
Markup Link(const std::string& url, const std::string& text);
/// "/jobs/ID" as a link.
Markup JobLink(const std::string& id);
/// A state: a colour of the style sheet ("ok", "run", "wait", "warn", "bad", "off"), a shape and the word.
Markup Badge(const std::string& kind, const std::string& word);
/// `part` of 1 as a bar; what it says stands beside it.
Markup Meter(double part, const std::string& kind);
/// "2026-12-01 08:15:00 UTC" in a time element, shown as "3m 05s ago" of `now`.
Markup Ago(const google::protobuf::Timestamp& time, std::chrono::system_clock::time_point now);
double Seconds(const google::protobuf::Timestamp& time);
double Seconds(std::chrono::system_clock::time_point time);
std::string Utc(double unix_seconds);

/// A table with a caption for those who do not see it. The first cell of a row is its heading.
class HtmlTable {
 public:
  struct Column {
    std::string name;
    bool number = false;  // aligned to the right, digits of one width
  };
  HtmlTable(const std::string& caption, std::vector<Column> columns);
  void Row(const std::vector<Markup>& cells);
  size_t rows() const { return rows_; }
  /// With "and N more" below it, where `more` is not zero; `where`: what shows those.
  std::string Html(size_t more = 0, const std::string& where = "") const;

 private:
  std::vector<Column> columns_;
  std::string html_;
  size_t rows_ = 0;
};

/// A part of the page with a heading; `aside`: HTML that stands at the heading's right.
std::string Section(const std::string& id, const std::string& heading, const std::string& html,
                    const std::string& aside = "");
/// What stands where there is nothing yet, and what to do about it.
std::string Empty(const std::string& sentence, const std::string& command = "");
/// A figure that is to be seen at a glance.
std::string Tile(const std::string& label, const Markup& value, const Markup& note,
                 const Markup& meter = Markup{});

struct Frame {
  std::string title;
  std::string coordinator;  // HOST:PORT
  std::string up;           // HTML: since when it runs
  std::string path;         // of this page
  bool refreshes = true;    // it loads itself again, unless it is paused
  bool paused = false;
};
/// The whole document.
std::string Page(const Frame& frame, const std::string& body);
/// The style sheet; every colour is a custom property, set for light and for dark.
extern const char kStyle[];

}  // namespace metp
