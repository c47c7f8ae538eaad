// Marks and their media are matched in one pass over the sample: a mark takes the next entry of the list, and only text
// that stood in the sample is searched for marks.
#include "core/data/chat_messages.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/chat_json.h"
#include "core/data/chat_media.h"

namespace loom {
namespace {

constexpr std::string_view kMark = "<image>";

struct RoleName {
  const char* name;
  const char* role;
};

constexpr RoleName kRoles[] = {{"user", "user"},
                               {"human", "user"},
                               {"assistant", "assistant"},
                               {"gpt", "assistant"},
                               {"model", "assistant"},
                               {"bot", "assistant"},
                               {"function_call", "assistant"},
                               {"tool_call", "assistant"},
                               {"system", "system"},
                               {"developer", "system"},
                               {"tool", "tool"},
                               {"observation", "tool"},
                               {"function", "tool"},
                               {"tool_response", "tool"},
                               {"function_response", "tool"}};

const std::vector<std::string> kForms = {"messages", "conversations", "text", "caption", "instruction"};
const std::vector<std::string> kPartTypes = {"text", "image_url", "image"};

bool blank(const std::string& text) { return trim(text).empty(); }

class ChatReader {
 public:
  explicit ChatReader(const Json& sample) : sample_(sample) {}

  std::vector<SamplePart> read() {
    if (!sample_.is_object())
      throw UserError(
          concat("expected an object with ", join(kForms, ", "), " or image + caption; found ", json_kind(sample_)));
    refuse_what_is_not_done();
    collect_media();
    const Json *messages = given(sample_, "messages"), *conversations = given(sample_, "conversations");
    if (messages != nullptr && conversations != nullptr)
      throw UserError("messages and conversations: both are given; expected one of them");
    if (messages != nullptr || conversations != nullptr) {
      read_turns(messages != nullptr ? "messages" : "conversations", messages != nullptr ? *messages : *conversations);
    } else if (given(sample_, "instruction") != nullptr) {
      read_alpaca();
    } else if (given(sample_, "caption") != nullptr || given(sample_, "text") != nullptr) {
      read_plain(given(sample_, "caption") != nullptr ? "caption" : "text");
    } else {
      throw UserError(
          concat("no form is recognised: expected one of the keys ", join(kForms, ", "), found_keys(sample_, kForms)));
    }
    check_marks();
    return std::move(parts_);
  }

 private:
  [[noreturn]] static void fail(const std::string& path, const std::string& what) {
    throw UserError(concat(path, ": ", what));
  }

  // Training on a part of such a sample as if it were all of it would be a silent mistake.
  void refuse_what_is_not_done() const {
    for (const char* key : {"chosen", "rejected"}) {
      if (given(sample_, key) != nullptr) fail(key, "pairs of preferred answers cannot be trained on yet");
    }
    if (const Json* tools = given(sample_, "tools"); tools != nullptr && !empty(*tools))
      fail("tools", "descriptions of tools are not rendered yet; write them into the system turn");
    if (const Json* objects = given(sample_, "objects"); objects != nullptr && !empty(*objects))
      fail("objects", "<ref-object> and <bbox> marks are not filled in; write the text out");
    for (const char* key : {"video", "videos"}) {
      if (const Json* list = given(sample_, key); list != nullptr && !empty(*list))
        fail(key, "clips cannot be decoded yet; expected pictures (images)");
    }
    for (const char* key : {"audio", "audios"}) {
      if (const Json* list = given(sample_, key); list != nullptr && !empty(*list))
        fail(key, "sounds cannot be decoded yet; expected pictures (images)");
    }
  }

  static bool empty(const Json& value) {
    return value.is_string() ? blank(value.get_ref<const std::string&>()) || value.get_ref<const std::string&>() == "[]"
                             : (value.is_array() || value.is_object()) && value.empty();
  }

  void collect_media() {
    const Json *one = given(sample_, "image"), *many = given(sample_, "images");
    if (one != nullptr && many != nullptr) throw UserError("image and images: both are given; expected one of them");
    const Json* list = one != nullptr ? one : many;
    if (list == nullptr) return;
    media_key_ = one != nullptr ? "image" : "images";
    listed_ = true;
    if (!list->is_array()) {
      media_.push_back(media_reference(*list, media_key_));
      return;
    }
    for (size_t i = 0; i < list->size(); ++i) media_.push_back(media_reference((*list)[i], concat(media_key_, ".", i)));
  }

  void read_turns(const std::string& key, const Json& turns) {
    if (!turns.is_array()) fail(key, concat("expected a list of turns, found ", json_kind(turns)));
    if (turns.empty()) fail(key, "the list of turns is empty");
    read_system();
    bool has_answerable = false;
    for (size_t i = 0; i < turns.size(); ++i) {
      const std::string role = read_turn(concat(key, ".", i), turns[i]);
      has_answerable = has_answerable || role == "user" || role == "assistant";
    }
    if (!has_answerable) fail(key, "no turn of a user or an assistant");
  }

  void read_system() {
    const Json* system = given(sample_, "system");
    if (system == nullptr) return;
    if (!system->is_string()) fail("system", concat("expected a text, found ", json_kind(*system)));
    if (blank(system->get_ref<const std::string&>())) return;
    add_turn("system", system->get_ref<const std::string&>());
    has_system_ = true;
  }

  std::string read_turn(const std::string& path, const Json& turn) {
    if (!turn.is_object()) fail(path, concat("expected an object with role and content, found ", json_kind(turn)));
    const bool sharegpt =
        given(turn, "role") == nullptr && (given(turn, "from") != nullptr || given(turn, "value") != nullptr);
    const std::string role = read_role(path, turn, sharegpt ? "from" : "role");
    if (role == "system" && has_system_) fail(path, "a system turn beside the key system; expected one of them");
    if (const Json* calls = given(turn, "tool_calls"); calls != nullptr && !empty(*calls))
      fail(path + ".tool_calls", "calls as objects are not rendered yet; write them as text into content");
    const bool learned = is_learned(path, turn) && role == "assistant";
    const char *usual = sharegpt ? "value" : "content", *other = sharegpt ? "content" : "value";
    const char* key = given(turn, usual) == nullptr && given(turn, other) != nullptr ? other : usual;
    const Json* content = given(turn, key);
    if (content == nullptr)
      fail(concat(path, ".", key),
           concat("missing; expected a text", sharegpt ? "" : " or a list of parts", found_keys(turn, {key})));
    parts_.push_back(SamplePart::make_turn_begin(role));
    const size_t before = parts_.size();
    read_content(concat(path, ".", key), *content, learned);
    if (role == "assistant" && says_nothing(before)) fail(concat(path, ".", key), "the assistant's turn is empty");
    parts_.push_back(SamplePart::make_turn_end(learned));
    return role;
  }

  std::string read_role(const std::string& path, const Json& turn, const char* key) const {
    const Json* value = given(turn, key);
    if (value == nullptr)
      fail(concat(path, ".", key),
           concat("missing; expected user, assistant, system or tool", found_keys(turn, {"role", "from"})));
    if (!value->is_string()) fail(concat(path, ".", key), concat("expected a text, found ", json_kind(*value)));
    const std::string& name = value->get_ref<const std::string&>();
    std::vector<std::string> names;
    for (const RoleName& known : kRoles) {
      if (name == known.name) return known.role;
      names.emplace_back(known.name);
    }
    fail(concat(path, ".", key),
         concat("expected user, assistant, system or tool, found ", quote_text(name), did_you_mean(name, names)));
  }

  // "loss": false and "weight": 0 switch an answer off.
  static bool is_learned(const std::string& path, const Json& turn) {
    bool out = true;
    if (const Json* loss = given(turn, "loss"); loss != nullptr) {
      if (!loss->is_boolean()) fail(path + ".loss", concat("expected true or false, found ", json_kind(*loss)));
      out = loss->get<bool>();
    }
    if (const Json* weight = given(turn, "weight"); weight != nullptr) {
      const bool valid = weight->is_number() && (weight->get<double>() == 0 || weight->get<double>() == 1);
      if (!valid) fail(path + ".weight", concat("expected 0 or 1, found ", json_kind(*weight)));
      out = out && weight->get<double>() == 1;
    }
    return out;
  }

  void read_content(const std::string& path, const Json& content, bool learned) {
    if (content.is_string()) {
      add_text(content.get_ref<const std::string&>(), learned);
      return;
    }
    if (!content.is_array()) fail(path, concat("expected a text or a list of parts, found ", json_kind(content)));
    for (size_t i = 0; i < content.size(); ++i) read_part(concat(path, ".", i), content[i], learned);
  }

  void read_part(const std::string& path, const Json& part, bool learned) {
    if (part.is_string()) {
      push_text(part.get<std::string>(), learned);
      return;
    }
    if (!part.is_object()) fail(path, concat("expected an object with type, found ", json_kind(part)));
    const Json* type = given(part, "type");
    if (type == nullptr)
      fail(path + ".type", concat("missing; expected one of ", join(kPartTypes, ", "), found_keys(part, {"type"})));
    if (!type->is_string()) fail(path + ".type", concat("expected a text, found ", json_kind(*type)));
    const std::string& name = type->get_ref<const std::string&>();
    if (name == "text") {
      const Json* text = given(part, "text");
      if (text == nullptr) fail(path + ".text", concat("missing; expected a text", found_keys(part, {"text"})));
      if (!text->is_string()) fail(path + ".text", concat("expected a text, found ", json_kind(*text)));
      push_text(text->get<std::string>(), learned);
    } else if (name == "image_url" || name == "image") {
      read_picture_part(path, part, name);
    } else if (name.rfind("video", 0) == 0) {
      fail(path, "clips cannot be decoded yet; expected pictures");
    } else if (name.rfind("audio", 0) == 0 || name == "input_audio") {
      fail(path, "sounds cannot be decoded yet; expected pictures");
    } else {
      fail(path + ".type", concat("expected one of ", join(kPartTypes, ", "), ", found ", quote_text(name),
                                  did_you_mean(name, kPartTypes)));
    }
  }

  void read_picture_part(const std::string& path, const Json& part, const std::string& type) {
    const std::vector<std::string> keys = {type, "image", "image_url", "url", "path"};
    for (const std::string& key : keys) {
      const Json* value = given(part, key.c_str());
      if (value == nullptr) continue;
      push_media(media_reference(*value, concat(path, ".", key)));
      return;
    }
    // A placeholder: the picture is the next one of the sample's list.
    if (!listed_)
      fail(concat(path, ".", type), concat("missing; expected the path of a picture", found_keys(part, keys)));
    take_listed();
  }

  void read_alpaca() {
    const std::string instruction = text_of("instruction"), input = text_of("input"), output = text_of("output");
    read_system();
    if (const Json* history = given(sample_, "history"); history != nullptr) {
      if (!history->is_array())
        fail("history", concat("expected a list of [question, answer], found ", json_kind(*history)));
      for (size_t i = 0; i < history->size(); ++i) {
        const Json& pair = (*history)[i];
        const bool valid = pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
        if (!valid) fail(concat("history.", i), concat("expected [question, answer], found ", json_kind(pair)));
        add_turn("user", pair[0].get_ref<const std::string&>());
        add_turn("assistant", pair[1].get_ref<const std::string&>());
      }
    }
    add_turn("user", input.empty() ? instruction : instruction.empty() ? input : instruction + "\n" + input);
    if (given(sample_, "output") == nullptr)
      fail("output", concat("missing; expected a text", found_keys(sample_, {"output"})));
    if (blank(output)) fail("output", "the answer is empty");
    add_turn("assistant", output);
  }

  std::string text_of(const char* key) const {
    const Json* value = given(sample_, key);
    if (value == nullptr) return "";
    if (!value->is_string()) fail(key, concat("expected a text, found ", json_kind(*value)));
    return value->get<std::string>();
  }

  // Pictures without marks come first.
  void read_plain(const char* key) {
    const std::string text = text_of(key);
    if (blank(text)) fail(key, "the text is empty");
    if (listed_ && text.find(kMark) == std::string::npos) {
      while (taken_ < media_.size()) take_listed();
    }
    add_text(text, true);
  }

  void add_turn(const std::string& role, const std::string& text) {
    const bool learned = role == "assistant";
    parts_.push_back(SamplePart::make_turn_begin(role));
    add_text(text, learned);
    parts_.push_back(SamplePart::make_turn_end(learned));
  }

  // In samples with a list of media, marks stand for them; elsewhere they are text like any other.
  void add_text(const std::string& text, bool learned) {
    size_t at = 0;
    if (listed_) {
      for (const char* mark : {"<video>", "<audio>"}) {
        if (text.find(mark) != std::string::npos)
          fail(media_key_, concat("the text has the mark ", mark, ", but only pictures can be decoded yet"));
      }
      for (size_t hit = text.find(kMark); hit != std::string::npos; hit = text.find(kMark, at)) {
        push_text(text.substr(at, hit - at), learned);
        take_listed();
        at = hit + kMark.size();
      }
    }
    push_text(at == 0 ? text : text.substr(at), learned);
  }

  void push_text(std::string text, bool learned) {
    if (!text.empty()) parts_.push_back(SamplePart::make_text(std::move(text), learned));
  }

  void push_media(std::string reference) {
    SamplePart part = SamplePart::make_media({});
    part.text = std::move(reference);
    parts_.push_back(std::move(part));
  }

  void take_listed() {
    if (taken_ < media_.size()) push_media(std::move(media_[taken_]));
    ++taken_;
  }

  bool says_nothing(size_t from) const {
    for (size_t i = from; i < parts_.size(); ++i) {
      if (parts_[i].kind == SamplePart::Kind::media || !blank(parts_[i].text)) return false;
    }
    return true;
  }

  void check_marks() const {
    if (!listed_ || taken_ == media_.size()) return;
    fail(media_key_, concat(taken_, " ", kMark, taken_ == 1 ? " mark" : " marks", " in the text, but ", media_.size(),
                            media_.size() == 1 ? " picture" : " pictures"));
  }

  const Json& sample_;
  std::vector<SamplePart> parts_;
  std::vector<std::string> media_;  // references of the sample's list
  std::string media_key_;
  size_t taken_ = 0;  // marks seen so far
  bool listed_ = false, has_system_ = false;
};

}  // namespace

std::vector<SamplePart> parse_chat(std::string_view text) {
  const Json sample = parse_sample(text);
  return ChatReader(sample).read();
}

}  // namespace loom
