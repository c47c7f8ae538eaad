// The page of a preview: the report's sheet, and a few lines of its own for tokens.
#include <algorithm>

#include "core/base/text.h"
#include "core/base/version.h"
#include "pipelines/data_preview.h"
#include "pipelines/png.h"
#include "pipelines/report_assets.h"
#include "pipelines/report_page.h"

namespace loom {
namespace {

constexpr size_t kMostPieces = 4000;

const char* const kPreviewStyle = R"css(
.looks { list-style: none; padding: 0; }
.looks > li { display: grid; grid-template-columns: 276px minmax(0, 1fr); gap: 16px 32px; padding: 24px 0; border-top: 1px solid var(--line); }
.looks > li > header { grid-column: 1 / -1; display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 14px; }
.looks h3 { font-size: 15px; font-weight: 620; overflow-wrap: anywhere; }
.looks header span { color: var(--soft); font-size: 13.5px; }
.looks .why { grid-column: 1 / -1; color: var(--bad); font-size: 14px; overflow-wrap: anywhere; }
.looks .alone { grid-column: 1 / -1; }
.pictures { display: grid; gap: 18px; align-content: start; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; align-items: start; }
.pair div { color: var(--soft); font-size: 12.5px; line-height: 1.4; min-width: 0; }
.pair img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; background: var(--raised); border-radius: 6px; margin-bottom: 6px; }
.pair img.small { image-rendering: pixelated; }
.tokens { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.95 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; max-width: 88ch; }
.tokens i { font-style: normal; padding: 3px 0; background: var(--raised); }
.tokens i:nth-child(even) { background: var(--line); }
.tokens .s i { background: color-mix(in srgb, var(--a) 21%, transparent); }
.tokens .s i:nth-child(even) { background: color-mix(in srgb, var(--a) 35%, transparent); }
.tokens u { text-decoration: none; font-size: 11.5px; color: var(--soft); border: 1px solid var(--faint); border-radius: 4px; padding: 1px 5px; margin: 0 2px; white-space: nowrap; }
.tokens .s u { color: var(--a); border-color: var(--a); background: color-mix(in srgb, var(--a) 21%, transparent); }
.tokens b { font: 560 12.5px/1.3 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--b); border: 1px dashed var(--b); border-radius: 6px; padding: 3px 9px; margin: 0 3px; white-space: nowrap; }
.tokens small { color: var(--faint); }
.legend-line { display: flex; flex-wrap: wrap; gap: 6px 22px; margin-top: 24px; font-size: 13.5px; color: var(--soft); align-items: center; }
.legend-line .tokens { font-size: 13px; line-height: 1.4; margin-right: 8px; }
@media (max-width: 640px) { .looks > li { grid-template-columns: minmax(0, 1fr); } .pictures { max-width: 300px; } }
)css";

// Newlines are shown, and break the line.
std::string piece_text(const std::string& text) {
  std::string out;
  for (const char c : html_escape(text)) out += c == '\n' ? "↵\n" : c == '\t' ? "⇥\t" : std::string(1, c);
  return out;
}

std::string piece_html(const TokenPiece& piece) {
  if (piece.kind == TokenPiece::Kind::special) return "<u>" + html_escape(piece.text) + "</u>";
  if (piece.kind == TokenPiece::Kind::media)
    return "<b>" + html_escape(piece.text) + " · " + with_commas(piece.tokens) +
           (piece.tokens == 1 ? " slot" : " slots") + "</b>";
  const std::string title = piece.tokens > 1 ? " title=\"" + std::to_string(piece.tokens) + " tokens\"" : "";
  return "<i" + title + ">" + piece_text(piece.text) + "</i>";
}

std::string tokens_html(const std::vector<TokenPiece>& pieces) {
  std::string out = "<div class=\"tokens\">";
  bool open = false;
  const size_t shown = std::min(pieces.size(), kMostPieces);
  for (size_t i = 0; i < shown; ++i) {
    const TokenPiece& piece = pieces[i];
    if (open && !piece.supervised) out += "</span>";
    if (!open && piece.supervised) out += "<span class=\"s\">";
    open = piece.supervised;
    out += piece_html(piece);
  }
  if (open) out += "</span>";
  int64_t left = 0;
  for (size_t i = shown; i < pieces.size(); ++i) left += pieces[i].tokens;
  if (left > 0) out += " <small>… and " + with_commas(left) + " more tokens</small>";
  return out + "</div>";
}

std::string image(const std::string& png, const std::string& what, const std::string& size) {
  const size_t cross = size.find('x');
  const bool small = cross != std::string::npos && std::stoll(size.substr(0, cross)) <= 96;
  return std::string("<img loading=\"lazy\"") + (small ? " class=\"small\"" : "") + " alt=\"" + what + "\" src=\"" +
         png_data_uri(png) + "\">";
}

std::string picture_html(const PreviewPicture& picture) {
  if (picture.original.empty() && picture.seen.empty()) return "";
  std::string out = "<div class=\"pair\">";
  if (!picture.original.empty())
    out += "<div>" + image(picture.original, "as it was read", picture.original_size) + "as it was read<br>" +
           picture.original_size + "</div>";
  if (!picture.seen.empty())
    out += "<div>" + image(picture.seen, "as the model sees it", picture.seen_size) + "as the model sees it<br>" +
           picture.seen_size + ", " + with_commas(picture.slots) + (picture.slots == 1 ? " slot" : " slots") + "</div>";
  return out + "</div>";
}

std::string sample_html(const PreviewSample& sample) {
  std::string out = "<li><header><h3>" + html_escape(sample.name) + "</h3><span>";
  out += sample.skipped.empty()
             ? with_commas(sample.tokens) + " tokens, " + with_commas(sample.supervised) + " of them learned"
             : "not used";
  out += "</span></header>\n";
  std::string pictures;
  for (const PreviewPicture& picture : sample.pictures) pictures += picture_html(picture);
  if (!pictures.empty()) out += "<div class=\"pictures\">" + pictures + "</div>";
  if (!sample.skipped.empty()) {
    out += "<p class=\"why\">" + html_escape(sample.skipped) + "</p>";
  } else {
    out += (pictures.empty() ? "<div class=\"alone\">" : "<div>") + tokens_html(sample.pieces) + "</div>";
  }
  return out + "</li>\n";
}

std::string number_html(const std::string& label, const std::string& value, const std::string& note,
                        bool main = false) {
  return std::string("<div") + (main ? " class=\"main\"" : "") + "><dt>" + label + "</dt><dd>" + html_escape(value) +
         "<small>" + html_escape(note) + "</small></dd></div>";
}

std::string headline(const PreviewPage& page) {
  std::vector<int64_t> tokens;
  int64_t all = 0, supervised = 0, skipped = 0;
  for (const PreviewSample& sample : page.samples) {
    if (!sample.skipped.empty()) {
      ++skipped;
      continue;
    }
    tokens.push_back(sample.tokens);
    all += sample.tokens;
    supervised += sample.supervised;
  }
  std::sort(tokens.begin(), tokens.end());
  const auto shown = static_cast<int64_t>(page.samples.size());
  std::string out = "<div class=\"state\"><i></i>Omniloom data preview</div>\n<h1>" + html_escape(page.title) +
                    "</h1>\n<p class=\"lead\">" + with_commas(shown) + " of " + with_commas(page.total) +
                    " samples of data." + html_escape(page.split) +
                    ", drawn at random, as training prepares them.</p>\n<dl class=\"numbers\">";
  if (!tokens.empty()) {
    out += number_html("Tokens", with_commas(tokens[tokens.size() / 2]),
                       "median; " + with_commas(tokens.front()) + " to " + with_commas(tokens.back()), true);
    out += number_html("Learned", std::to_string(all > 0 ? 100 * supervised / all : 0) + " %", "of all tokens");
  }
  out += number_html("Not used", with_commas(skipped), "of " + with_commas(shown) + " samples shown");
  return out +
         "</dl>\n<div class=\"legend-line\"><span class=\"tokens\"><span class=\"s\"><i>lear</i><i>ned</i></span>"
         "</span><span class=\"tokens\"><i>giv</i><i>en</i></span><span class=\"tokens\"><u>special</u></span>"
         "<span class=\"tokens\"><b>picture · slots</b></span></div>\n";
}

}  // namespace

std::string preview_html(const PreviewPage& page) {
  std::string list;
  for (const PreviewSample& sample : page.samples) list += sample_html(sample);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\">\n<title>" +
         html_escape(page.title) + " data - Omniloom</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>" +
         kReportStyle + kPreviewStyle + "</style>\n</head>\n<body>\n<main>\n" + headline(page) +
         "<section><ul class=\"looks\">\n" + list + "</ul></section>\n</main>\n<footer>Omniloom " +
         std::string(kVersion) + "</footer>\n</body>\n</html>\n";
}

}  // namespace loom
