// The parts that pages are made of: text, tables, charts, the style sheet.

#include <cmath>
#include <limits>
#include <map>
#include <regex>

#include "server/http/html.h"
#include "server/http/svg_chart.h"
#include "tests/server/http/status_fixture.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string Plain(double value) { return std::to_string(std::lround(value)); }

TEST(StatusPageHtml, EscapesWhatWouldBeMarkup) {
  EXPECT_EQ(Escape("a<b>&\"c'\x01\n"), "a&lt;b&gt;&amp;&quot;c&#39; \n");
  EXPECT_EQ(Text("<i>").html, "&lt;i&gt;");
  EXPECT_EQ(Code("<i>").html, "<code>&lt;i&gt;</code>");
}

TEST(StatusPageHtml, LinksOnlyToPagesOfTheWeb) {
  EXPECT_EQ(Link("http://a/\"", "x").html, "<a href=\"http://a/&quot;\">x</a>");
  EXPECT_EQ(Link("javascript:alert(1)", "x").html, "x");
  EXPECT_EQ(Link("", "x").html, "x");
}

TEST(StatusPageHtml, TablesNameTheirRowsAndColumns) {
  HtmlTable table("Things", {{"Name"}, {"Count", true}});
  table.Row({Text("a"), Text("1")});
  EXPECT_THAT(table.Html(), HasSubstr("<caption>Things</caption>"));
  EXPECT_THAT(table.Html(), HasSubstr("<th scope=\"col\">Name</th><th scope=\"col\" class=\"n\">Count</th>"));
  EXPECT_THAT(table.Html(), HasSubstr("<th scope=\"row\">a</th><td class=\"n\">1</td>"));
  EXPECT_THAT(table.Html(), Not(HasSubstr("more")));
  EXPECT_THAT(table.Html(1234, "metpctl get"), HasSubstr("and 1,234 more: <code>metpctl get</code>"));
}

/// WCAG 2's relative luminance of "#rrggbb".
double Luminance(const std::string& color) {
  const double weights[] = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    const double part = std::stoi(color.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += weights[i] * (part <= 0.03928 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double Contrast(const std::string& a, const std::string& b) {
  const double x = Luminance(a) + 0.05, y = Luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

TEST(StatusPageStyle, HasEnoughContrastInBothThemes) {
  const std::string style = kStyle;
  const size_t dark = style.find("@media(prefers-color-scheme:dark)"), end = style.find("*{box-sizing");
  ASSERT_NE(dark, std::string::npos);
  for (const std::string& theme : {style.substr(0, dark), style.substr(dark, end - dark)}) {
    std::map<std::string, std::string> colors;
    const std::regex property("--([a-z0-9]+):(#[0-9a-f]{6})");
    for (std::sregex_iterator at(theme.begin(), theme.end(), property), last; at != last; ++at)
      colors[(*at)[1]] = (*at)[2];
    for (const char* text : {"text", "muted", "link", "ok", "run", "wait", "warn", "bad", "off"}) {
      for (const char* ground : {"bg", "surface", "grid"}) {
        EXPECT_GE(Contrast(colors.at(text), colors.at(ground)), 4.5) << text << " on " << ground;
      }
    }
    for (const char* mark : {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "plan"}) {
      EXPECT_GE(Contrast(colors.at(mark), colors.at("surface")), 3) << mark;
    }
  }
}

TEST(StatusPageCharts, MarkAxesWithRoundNumbers) {
  EXPECT_THAT(Ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(Ticks(0.3, 0.9, 3), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(Ticks(0, 3.0 * (1 << 30), 3, true), ElementsAre(0, 1 << 30, 2.0 * (1 << 30), 3.0 * (1 << 30)));
  EXPECT_THAT(Ticks(5, 5, 4), ElementsAre(5));
}

TEST(StatusPageCharts, MarkNoAxisWithoutEnd) {
  constexpr double kMost = std::numeric_limits<double>::max(), kInf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(Ticks(2, std::nextafter(2, 3), 5), ElementsAre(2));
  EXPECT_THAT(Ticks(-1e200, std::nextafter(-1e200, 0), 5), ElementsAre(-1e200));
  for (const bool bytes : {false, true}) {
    for (const double low : {-kInf, -kMost, -1.0, 0.0, 1.0, 1e17, kMost, kInf, kNone}) {
      for (const double high : {-kMost, 5e-324, 1 + 1e-8, 1e17 + 64, 1e300, kMost, kInf, kNone}) {
        const std::vector<double> ticks = Ticks(low, high, 5, bytes);
        EXPECT_GE(ticks.size(), 1u) << low << " " << high;
        EXPECT_LE(ticks.size(), 64u) << low << " " << high;
      }
    }
  }
}

Chart Small() { return {.id = "c", .title = "<T>", .description = "D", .steps = {1, 2, 3}, .format = Plain}; }

TEST(StatusPageCharts, DrawLinesWithNamesGapsAndFigures) {
  const std::string svg = LineChart(Small(), {{"a&b", "--s0", {1, kNone, 3}}});
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-labelledby=\"c-t c-d\"><title id=\"c-t\">&lt;T&gt;</title>"));
  EXPECT_THAT(svg, HasSubstr("<desc id=\"c-d\">D</desc>"));
  EXPECT_THAT(svg, HasSubstr("step 3\na&amp;b 3</title>"));
  const std::regex line("class=\"l\" stroke=\"var\\(--s0\\)\" d=\"(M[0-9. ]+)(M[0-9. ]+)\"");
  EXPECT_TRUE(std::regex_search(svg, line)) << svg;  // two strokes, nothing between
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(StatusPageCharts, DrawNothingWrongOfOddValues) {
  const double inf = std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::max();
  for (const std::vector<double>& values : {std::vector<double>{},
                                            {kNone, kNone, kNone},
                                            {inf, 1, -inf},
                                            {7, 7, 7},
                                            {2, std::nextafter(2, 3), 2},
                                            {most, -most, 1},
                                            {0, 0, 0},
                                            {-1, -2, -3}}) {
    for (const std::string& svg :
         {LineChart(Small(), {{"a", "--s0", values}}), AreaChart(Small(), {{"a", "--s0", values}}),
          SmallChart(Small(), {"a", "--s0", values}), Sparkline(values, "t"),
          BarChart(Small(), {{"a", inf, 2.0}, {"b", kNone, -inf}})}) {
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
  }
  EXPECT_THAT(Sparkline({1}, "t"), IsEmpty());
}

TEST(StatusPageCharts, StackAreasAndKeepFarLinesOff) {
  Chart chart = Small();
  const std::vector<Series> areas = {{"low", "--s0", {1, 1, 1}}, {"high", "--s1", {2, 2, 2}}};
  chart.references = {{"near", 4}, {"far", 1000}};
  EXPECT_TRUE(ShowsReference(areas, chart.references[0]));
  EXPECT_FALSE(ShowsReference(areas, chart.references[1]));
  const std::string svg = AreaChart(chart, areas);
  EXPECT_EQ(Times(svg, "class=\"area\""), 2);
  EXPECT_EQ(Times(svg, "class=\"ref\""), 1);
  EXPECT_THAT(svg, HasSubstr(">near</text>"));
  EXPECT_THAT(svg, HasSubstr("step 1\nhigh 2\nlow 1</title>"));  // from the top down, as they are drawn
}

TEST(StatusPageCharts, DrawASingleStepAsWideAsTheChart) {
  Chart chart = Small();
  chart.steps = {7};
  EXPECT_THAT(AreaChart(chart, {{"a", "--s0", {3}}}), HasSubstr("M64.0"));
  EXPECT_THAT(LineChart(chart, {{"a", "--s0", {3}}}), HasSubstr("<circle"));
}

TEST(StatusPageCharts, PutBarsInPairs) {
  const std::string svg = BarChart(Small(), {{"one", 2.0, 4.0}, {"two", std::nullopt, 1.0}});
  EXPECT_EQ(Times(svg, "class=\"hollow\""), 1);
  EXPECT_EQ(Times(svg, "fill=\"var(--run)\""), 2);
  EXPECT_THAT(svg, HasSubstr(">-</text>"));
}

TEST(StatusPageCharts, AnswerThePointerAtBoundedlyManyPlaces) {
  Chart chart = Small();
  chart.steps.clear();
  Series series{"a", "--s0"};
  for (int i = 0; i < 5000; ++i) chart.steps.push_back(i), series.values.push_back(i);
  EXPECT_LE(Times(LineChart(chart, {series}), "class=\"hit\""), 120);
}

}  // namespace
}  // namespace metp
