// Every form of a chat sample to the parts it means, and every defect to a line that says what was expected and found.
#include "core/data/chat_messages.h"

#include <gtest/gtest.h>

#include "tests/core/checkpoint/files.h"
#include "tests/core/data/sources.h"

namespace loom {
namespace {

using test::line_of;

std::string parsed(const std::string& json) { return test::shown(parse_chat(json)); }
std::string refused(const std::string& json) {
  return line_of<UserError>([&] { parse_chat(json); });
}

TEST(ChatMessages, ShareGpt) {
  EXPECT_EQ(parsed(R"({"conversations":[{"from":"human","value":"<image>What colour?"},{"from":"gpt","value":"Green."}],
                       "system":"Be brief.","images":["img/door.jpg"]})"),
            "[system]Be brief.[/system][user]<img/door.jpg>What colour?[/user][assistant]*Green.[/assistant]*");
  EXPECT_EQ(parsed(R"json({"conversations":[{"from":"system","value":"S"},{"from":"human","value":"a"},
                       {"from":"function_call","value":"f()"},{"from":"observation","value":"1"},
                       {"from":"gpt","value":"b"}], "tools": "[]"})json"),
            "[system]S[/system][user]a[/user][assistant]*f()[/assistant]*[tool]1[/tool][assistant]*b[/assistant]*");
}

TEST(ChatMessages, MessagesWithSeveralPicturesAndTurns) {
  EXPECT_EQ(parsed(R"({"messages":[{"role":"system","content":"Be brief."},
                       {"role":"user","content":"<image><image>Which is larger?"},
                       {"role":"assistant","content":"The second."},{"role":"user","content":"And in <image> this?"},
                       {"role":"assistant","content":"This."}],"images":["a.png",{"path":"b.png"},{"url":"c.png"}]})"),
            "[system]Be brief.[/system][user]<a.png><b.png>Which is larger?[/user][assistant]*The second.[/assistant]*"
            "[user]And in <c.png> this?[/user][assistant]*This.[/assistant]*");
}

TEST(ChatMessages, ContentParts) {
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":[{"type":"text","text":"What is "},
                       {"type":"image_url","image_url":{"url":"file:///d/a.png"}},{"type":"image","image":"b.png"},
                       {"type":"image","path":"c.png"},{"type":"image","url":"d.png"},
                       {"type":"image_url","image_url":"data:image/png;base64,AAAA"},"?"]},
                       {"role":"assistant","content":[{"type":"text","text":"A cup."}]}]})"),
            "[user]What is <file:///d/a.png><b.png><c.png><d.png><data:image/png;base64,AAAA>?[/user]"
            "[assistant]*A cup.[/assistant]*");
  // Placeholders take the sample's list.
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"Q"}]},
                       {"role":"assistant","content":"A"}],"images":["a.png"]})"),
            "[user]<a.png>Q[/user][assistant]*A[/assistant]*");
}

TEST(ChatMessages, Llava) {
  EXPECT_EQ(parsed(R"({"id":"0001","image":"coco/1.jpg","conversations":[
                       {"from":"human","value":"<image>\nDescribe it."},{"from":"gpt","value":"A red bus."}]})"),
            "[user]<coco/1.jpg>\nDescribe it.[/user][assistant]*A red bus.[/assistant]*");
  EXPECT_EQ(parsed(R"({"image":["a.jpg","b.jpg"],"conversations":[{"from":"human","value":"<image>\n<image>"},
                       {"from":"gpt","value":"Two."}]})"),
            "[user]<a.jpg>\n<b.jpg>[/user][assistant]*Two.[/assistant]*");
}

TEST(ChatMessages, TextCaptionAndAlpaca) {
  EXPECT_EQ(parsed(R"({"text":"Once upon a time."})"), "*Once upon a time.");
  EXPECT_EQ(parsed(R"({"image":"a.png","caption":"a dog"})"), "<a.png>*a dog");
  EXPECT_EQ(parsed(R"({"images":["a.png","b.png"],"text":"first <image> then <image>."})"),
            "*first <a.png>* then <b.png>*.");
  EXPECT_EQ(
      parsed(R"({"instruction":"Add.","input":"1 2","output":"3","system":"S","history":[["q","a"]]})"),
      "[system]S[/system][user]q[/user][assistant]*a[/assistant]*[user]Add.\n1 2[/user][assistant]*3[/assistant]*");
  EXPECT_EQ(parsed(R"({"instruction":"Name it. <image>","input":"","output":"A cat.","images":["a.png"]})"),
            "[user]Name it. <a.png>[/user][assistant]*A cat.[/assistant]*");
}

TEST(ChatMessages, SupervisionCanBeSwitchedOffPerMessage) {
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","loss":false},
                       {"role":"user","content":"c","loss":true},{"role":"assistant","content":"d","weight":0},
                       {"role":"user","content":"e"},{"role":"assistant","content":"f","weight":1,"loss":null}]})"),
            "[user]a[/user][assistant]b[/assistant][user]c[/user][assistant]d[/assistant][user]e[/user]"
            "[assistant]*f[/assistant]*");
  EXPECT_HAS(refused(R"({"messages":[{"role":"assistant","content":"d","weight":0.5}]})"),
             "messages.0.weight: expected 0 or 1, found a number");
  EXPECT_HAS(refused(R"({"messages":[{"role":"assistant","content":"d","loss":"no"}]})"),
             "messages.0.loss: expected true or false, found the text 'no'");
}

TEST(ChatMessages, MarksThatAreNotMedia) {
  // Without any list of media a mark is text; so it is in content parts.
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":"What does <image> mean, or <video>?"},
                       {"role":"assistant","content":"<image> is a tag."}]})"),
            "[user]What does <image> mean, or <video>?[/user][assistant]*<image> is a tag.[/assistant]*");
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":[{"type":"image","image":"a.png"},
                       {"type":"text","text":"Is this an <image>?"}]},{"role":"assistant","content":"Yes"}]})"),
            "[user]<a.png>Is this an <image>?[/user][assistant]*Yes[/assistant]*");
  // A reference that looks like a mark is not expanded again.
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"x"}],
                       "images":["<image>.png"]})"),
            "[user]<<image>.png>[/user][assistant]*x[/assistant]*");
}

TEST(ChatMessages, CountsOfMarksAndMediaMustBeEqual) {
  const auto with = [](const std::string& text, const std::string& media) {
    return R"({"messages":[{"role":"user","content":")" + text + R"("},{"role":"assistant","content":"x"}],)" + media +
           "}";
  };
  EXPECT_EQ(refused(with("<image><image> <image>", R"("images":["a.png","b.png"])")),
            "images: 3 <image> marks in the text, but 2 pictures");
  EXPECT_EQ(refused(with("<image>", R"("images":["a.png","b.png"])")),
            "images: 1 <image> mark in the text, but 2 pictures");
  EXPECT_EQ(refused(with("none", R"("image":"a.png")")), "image: 0 <image> marks in the text, but 1 picture");
  EXPECT_EQ(refused(with("<image>", R"("images":[])")), "images: 1 <image> mark in the text, but 0 pictures");
  EXPECT_HAS(refused(with("<image>", R"("images":["a.png"],"image":"a.png")")), "image and images: both are given");
  EXPECT_HAS(refused(with("<image><audio>", R"("images":["a.png"])")), "the text has the mark <audio>");
}

TEST(ChatMessages, MediaThatCannotBeRead) {
  const auto with = [](const std::string& media) {
    return R"({"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"x"}],)" + media + "}";
  };
  EXPECT_HAS(refused(with(R"("images":["https://a.org/b.png"])")),
             "images.0: 'https://a.org/b.png' is not on this machine, and nothing is downloaded");
  EXPECT_HAS(refused(with(R"("images":["s3://b/c.png"])")), "images.0: 's3://b/c.png' is not on this machine");
  EXPECT_HAS(refused(with(R"("images":[7])")), "images.0: expected the path of a picture, found a number");
  EXPECT_HAS(refused(with(R"("images":[" "])")), "images.0: expected the path of a picture, found an empty text");
  EXPECT_HAS(refused(with(R"("images":[{"pth":"a.png"}])")),
             "images.0: expected a path, or an object with path, url or image; found pth; did you mean 'path'?");
  EXPECT_HAS(refused(with(R"("videos":["v.mp4"])")), "videos: clips cannot be decoded yet");
  EXPECT_HAS(refused(with(R"("audios":["v.wav"])")), "audios: sounds cannot be decoded yet");
  EXPECT_HAS(refused(R"({"messages":[{"role":"user","content":[{"type":"video","video":"v.mp4"}]}]})"),
             "messages.0.content.0: clips cannot be decoded yet");
  EXPECT_HAS(refused(R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})"),
             "messages.0.content.0.image: missing; expected the path of a picture; found type");
}

TEST(ChatMessages, MissingKeysAndWrongTypesNameWhatWasExpectedAndFound) {
  EXPECT_EQ(refused(R"({"id":1,"mesages":[]})"),
            "no form is recognised: expected one of the keys messages, conversations, text, caption, instruction; "
            "found id, mesages; did you mean 'messages'?");
  EXPECT_HAS(refused("[1, 2]"), "expected an object with messages");
  EXPECT_HAS(refused("{}"), "found no keys");
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","contnet":"b"}]})"),
            "messages.1.content: missing; expected a text or a list of parts; found contnet, role; did you mean "
            "'content'?");
  EXPECT_HAS(refused(R"({"conversations":[{"from":"human","valu":"b"}]})"),
             "conversations.0.value: missing; expected a text; found from, valu; did you mean 'value'?");
  EXPECT_HAS(
      refused(R"({"messages":[{"rol":"user","content":"b"}]})"),
      "messages.0.role: missing; expected user, assistant, system or tool; found content, rol; did you mean 'role'?");
  EXPECT_HAS(refused(R"({"messages":[{"role":"asistant","content":"b"}]})"),
             "messages.0.role: expected user, assistant, system or tool, found 'asistant'; did you mean 'assistant'?");
  EXPECT_HAS(refused(R"({"messages":"hello"})"), "messages: expected a list of turns, found the text 'hello'");
  EXPECT_HAS(refused(R"({"messages":[]})"), "messages: the list of turns is empty");
  EXPECT_HAS(refused(R"({"messages":["hello"]})"), "messages.0: expected an object with role and content");
  EXPECT_HAS(refused(R"({"messages":[{"role":"user","content":7}]})"),
             "messages.0.content: expected a text or a list of parts, found a number");
  EXPECT_HAS(refused(R"({"messages":[{"role":"user","content":[{"type":"txt","text":"b"}]}]})"),
             "messages.0.content.0.type: expected one of text, image_url, image, found 'txt'; did you mean 'text'?");
  EXPECT_HAS(refused(R"({"messages":[{"role":"user","content":[{"text":"b"}]}]})"),
             "messages.0.content.0.type: missing");
  EXPECT_HAS(refused(R"({"messages":[],"conversations":[]})"), "messages and conversations: both are given");
  EXPECT_HAS(refused(R"({"messages":[{"role":"system","content":"only"}]})"),
             "messages: no turn of a user or an assistant");
  EXPECT_HAS(refused(R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}],"system":"c"})"),
             "messages.0: a system turn beside the key system");
  EXPECT_HAS(refused(R"({"system":7,"messages":[{"role":"user","content":"b"}]})"),
             "system: expected a text, found a number");
  EXPECT_HAS(refused(R"({"instruction":"a"})"), "output: missing; expected a text; found instruction");
  EXPECT_HAS(refused(R"({"text":""})"), "text: the text is empty");
  EXPECT_HAS(refused(R"({"text":["a"]})"), "text: expected a text, found a list");
}

TEST(ChatMessages, EmptyAnswersAndWhatIsNotDone) {
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""}]})"),
            "messages.1.content: the assistant's turn is empty");
  EXPECT_EQ(refused(R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":" \n"}]})"),
            "conversations.1.value: the assistant's turn is empty");
  EXPECT_HAS(refused(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null}]})"),
             "messages.1.content: missing");
  EXPECT_HAS(refused(R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":1}]}]})"),
             "messages.0.tool_calls: calls as objects are not rendered yet");
  EXPECT_HAS(refused(R"({"conversations":[{"from":"human","value":"a"}],"chosen":{"from":"gpt","value":"b"}})"),
             "chosen: pairs of preferred answers cannot be trained on yet");
  EXPECT_HAS(refused(R"({"conversations":[{"from":"human","value":"a"}],"tools":"[{\"name\":\"f\"}]"})"),
             "tools: descriptions of tools are not rendered yet");
}

TEST(ChatMessages, InvalidJsonAndUtf8) {
  EXPECT_HAS(refused(R"({"text": nul})"), R"(invalid JSON near '{"text": nul}': invalid literal)");
  EXPECT_HAS(refused(R"({"text": "a")"), "invalid JSON at the end of ");
  EXPECT_HAS(refused(R"({"text": "a"} x)"), "invalid JSON near ");
  EXPECT_HAS(refused(R"({'text': "a"})"), "invalid JSON near ");
  EXPECT_EQ(refused("{\"text\": \"caf\xe9\"}"), "invalid UTF-8 at byte 14 of the sample");
  EXPECT_HAS(refused("{\"text\": \"\\ud800\"}"), "invalid JSON");
  EXPECT_HAS(refused("{\"text\": 1e999}"), "invalid JSON: a number is out of range");
  EXPECT_HAS(refused(std::string(100000, '[')), "invalid JSON");
  EXPECT_HAS(refused(std::string(100000, '[') + std::string(100000, ']')), "expected an object");
  EXPECT_EQ(parsed("{\"text\": \"caf\xc3\xa9 \\u00e9 \\ud83d\\ude00\"}"), "*caf\xc3\xa9 \xc3\xa9 \xf0\x9f\x98\x80");
  const std::string longest = refused("{\"text\": \"" + std::string(5'000'000, 'x'));
  EXPECT_LT(longest.size(), 300u);
}

}  // namespace
}  // namespace loom
