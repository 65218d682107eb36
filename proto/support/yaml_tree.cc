// Builds the tree from yaml-cpp's parsing events. Exceptions of yaml-cpp end here.

#include "proto/support/yaml_tree.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace metp {
namespace {

using Style = YAML::EmitterStyle::value;

/// Receives one document's events, always properly nested, and grows the tree along a stack of open lists and
/// maps.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& override_text, Problems& problems)
      : override_text_(override_text), problems_(problems) {}

  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Refuse(mark, "?", anchor);
    AddLeaf(NewNode(mark, YamlNode::Kind::kNull));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Refuse(mark, "?", anchor);
    AddLeaf(NewNode(mark, YamlNode::Kind::kNull));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Refuse(mark, tag, anchor);
    YamlNode node = NewNode(mark, YamlNode::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
    AddLeaf(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       Style) override {
    Refuse(mark, tag, anchor);
    open_.push_back({NewNode(mark, YamlNode::Kind::kList), {}, false});
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Style) override {
    Refuse(mark, tag, anchor);
    open_.push_back({NewNode(mark, YamlNode::Kind::kMap), {}, false});
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

 private:
  struct Open {
    YamlNode node;
    YamlEntry pending;  // kMap: its key is known, its value is next
    bool has_key;
  };

  Place PlaceOf(const YAML::Mark& mark) const { return Place{mark.line + 1, override_text_}; }

  YamlNode NewNode(const YAML::Mark& mark, YamlNode::Kind kind) const {
    YamlNode node;
    node.kind = kind;
    node.place = PlaceOf(mark);
    return node;
  }

  void Refuse(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) {
      problems_.Add(PlaceOf(mark), "", "found an anchor or alias (&x, *x), expected the value written out");
    } else if (!tag.empty() && tag != "?" && tag != "!") {
      problems_.Add(PlaceOf(mark), "",
                    absl::StrCat("found a tag (", Shown(tag), "), expected the plain value"));
    }
  }

  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    AddLeaf(std::move(node));
  }

  void AddLeaf(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      parent.pending.value = std::move(node);
      parent.node.entries.push_back(std::move(parent.pending));
      parent.has_key = false;
    } else {
      if (node.kind != YamlNode::Kind::kScalar) {
        problems_.Add(node.place, "", absl::StrCat("found ", Found(node), " as a key, expected a word"));
      }
      parent.pending = YamlEntry{std::move(node.text), std::move(node.place), {}};
      parent.has_key = true;
    }
  }

  const std::string& override_text_;
  Problems& problems_;
  std::vector<Open> open_;
  YamlNode root_;
};

/// Bytes of the UTF-8 character at the start of `text` (not empty); 0: none stands there.
size_t CharacterLength(absl::string_view text) {
  const unsigned char first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length <= 1 || text.size() < length) {
    return length == 1 ? 1 : 0;
  }
  unsigned code = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const unsigned char next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) {
      return 0;
    }
    code = code << 6 | (next & 0x3Fu);
  }
  const bool overlong = code < (length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return overlong || surrogate || code > 0x10FFFF ? 0 : length;
}

/// Refuses what yaml-cpp would misread: it takes the byte 4 for the end of the file and replaces what is not
/// UTF-8.
bool CheckCharacters(absl::string_view text, const std::string& override_text, Problems& problems) {
  int line = 1;
  while (!text.empty()) {
    const unsigned char c = static_cast<unsigned char>(text[0]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F) {
      problems.Add({line, override_text}, "",
                   absl::StrFormat("found the byte 0x%02x, expected printable text", c));
      return false;
    }
    const size_t length = CharacterLength(text);
    if (length == 0) {
      problems.Add({line, override_text}, "", "found bytes that are not UTF-8, expected UTF-8 text");
      return false;
    }
    line += c == '\n';
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string Found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return node.quoted ? absl::StrCat("the text \"", Shown(node.text), "\"") : Shown(node.text);
    case YamlNode::Kind::kList:
      return node.items.empty() ? "an empty list" : "a list";
    case YamlNode::Kind::kMap:
      return "a section";
  }
  return "";
}

YamlNode ReadYaml(const std::string& text, const std::string& override_text, Problems& problems) {
  if (!CheckCharacters(text, override_text, problems)) {
    return {};
  }
  TreeBuilder builder(override_text, problems);
  try {
    // The comment at the end: yaml-cpp misses that a quote is never closed where only white space follows.
    std::istringstream stream(text.substr(0, text.find_last_not_of(" \t\r\n") + 1) + "\n#");
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    YamlNode root = builder.TakeRoot();
    TreeBuilder second(override_text, problems);
    if (parser.HandleNextDocument(second)) {
      problems.Add(second.TakeRoot().place, "", "found a second document (---), expected one");
    }
    return root;
  } catch (const YAML::DeepRecursion&) {
    problems.Add({1, override_text}, "",
                 "lists and sections stand too deep inside each other, expected a job");
  } catch (const YAML::Exception& error) {
    problems.Add({error.mark.line + 1, override_text}, "",
                 absl::StrCat("not valid YAML at column ", error.mark.column + 1, ": ", error.msg));
  }
  return {};
}

}  // namespace metp
