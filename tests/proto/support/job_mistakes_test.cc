// Every kind of mistake in a job file, with the exact message it gets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/support/job_file.h"
#include "tests/proto/support/job_text.h"

namespace metp {
namespace {

using test::JobWith;
using test::kJob;
using ::testing::HasSubstr;

std::string Wrong(const std::string& text) {
  const absl::StatusOr<v1::JobSpec> job = ParseJob(text, "job.yaml");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(job.status().message());
}

struct Mistake {
  std::string line, replacement, message;
};

class JobFileMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(JobFileMistakes, AreNamedWithLineKeyFoundAndExpected) {
  const Mistake& mistake = GetParam();
  EXPECT_EQ(Wrong(JobWith(mistake.line, mistake.replacement)), mistake.message);
}

INSTANTIATE_TEST_SUITE_P(
    Types, JobFileMistakes,
    ::testing::Values(
        Mistake{"layers: 2", "layers: two",
                "job.yaml:4: model.layers: found two, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: \"2\"",
                "job.yaml:4: model.layers: found the text \"2\", expected an integer of at least 1 and at "
                "most 10000"},
        Mistake{"layers: 2", "layers: 1.5",
                "job.yaml:4: model.layers: found 1.5, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: 1e3",
                "job.yaml:4: model.layers: found 1e3, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: 010",
                "job.yaml:4: model.layers: found 010, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: 0x2",
                "job.yaml:4: model.layers: found 0x2, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: 1_000",
                "job.yaml:4: model.layers: found 1_000, expected an integer of at least 1 and at most 10000"},
        Mistake{
            "layers: 2", "layers: [2]",
            "job.yaml:4: model.layers: found a list, expected an integer of at least 1 and at most 10000"},
        Mistake{
            "layers: 2", "layers: {n: 2}",
            "job.yaml:4: model.layers: found a section, expected an integer of at least 1 and at most 10000"},
        Mistake{
            "layers: 2", "layers:",
            "job.yaml:4: model.layers: found nothing, expected an integer of at least 1 and at most 10000"},
        Mistake{
            "layers: 2", "layers: ~",
            "job.yaml:4: model.layers: found nothing, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: true",
                "job.yaml:4: model.layers: found true, expected an integer of at least 1 and at most 10000"},
        Mistake{"layers: 2", "layers: \"\\a\"",
                "job.yaml:4: model.layers: found the text \"\\x07\", expected an integer of at least 1 and "
                "at most 10000"},
        Mistake{"learning_rate: 1e-3", "learning_rate: fast",
                "job.yaml:13: train.learning_rate: found fast, expected a number larger than 0"},
        Mistake{"learning_rate: 1e-3", "learning_rate: '1e-3'",
                "job.yaml:13: train.learning_rate: found the text \"1e-3\", expected a number larger than 0"},
        Mistake{"family: llama", "family: bert",
                "job.yaml:3: model.family: found bert, expected gpt2 or llama"},
        Mistake{"family: llama", "family: FAMILY_LLAMA",
                "job.yaml:3: model.family: found FAMILY_LLAMA, expected gpt2 or llama"},
        Mistake{"family: llama", "family: unspecified",
                "job.yaml:3: model.family: found unspecified, expected gpt2 or llama"},
        Mistake{"family: llama", "family: 2", "job.yaml:3: model.family: found 2, expected gpt2 or llama"},
        Mistake{"ffn: 96", "ffn: 96\n  causal: yes",
                "job.yaml:8: model.causal: found yes, expected true or false"},
        Mistake{"ffn: 96", "ffn: 96\n  causal: 'true'",
                "job.yaml:8: model.causal: found the text \"true\", expected true or false"},
        Mistake{"name: small", "name: [a]", "job.yaml:1: name: found a list, expected a text"},
        Mistake{"source: corpus.txt", "source: {a: b}",
                "job.yaml:9: data.source: found a section, expected a text or a list of texts"},
        Mistake{"source: corpus.txt", "source: []",
                "job.yaml:9: data.source: found an empty list, expected a text or a list of texts"},
        Mistake{"source: corpus.txt", "source:\n    - a.txt\n    - [b]",
                "job.yaml:11: data.source[1]: found a list, expected a text"},
        Mistake{"steps: 10", "steps: 10\n  betas: 0.9",
                "job.yaml:13: train.betas: found 0.9, expected a list of 2 numbers of at least 0 and less "
                "than 1"},
        Mistake{"steps: 10", "steps: 10\n  betas: [0.9]",
                "job.yaml:13: train.betas: found a list of 1, expected a list of 2 numbers of at least 0 and "
                "less than 1"},
        Mistake{"name: small", "name: small\nparallel: fast",
                "job.yaml:2: parallel: found fast, expected a section (degree, head_groups, tile_rows, "
                "attention, "
                "require_full_overlap, offload, recompute, min_degree, rings)"}));

INSTANTIATE_TEST_SUITE_P(
    Ranges, JobFileMistakes,
    ::testing::Values(
        Mistake{"steps: 10", "steps: -1",
                "job.yaml:12: train.steps: found -1, expected an integer of at least 1"},
        Mistake{"steps: 10", "steps: 0",
                "job.yaml:12: train.steps: found 0, expected an integer of at least 1"},
        Mistake{"steps: 10", "steps: 2147483648",
                "job.yaml:12: train.steps: found 2147483648, expected an integer of at least 1 that fits 32 "
                "bits"},
        Mistake{"steps: 10", "steps: 10\n  seed: 9223372036854775808",
                "job.yaml:13: train.seed: found 9223372036854775808, expected an integer of at least 0 that "
                "fits 64 bits"},
        Mistake{"learning_rate: 1e-3", "learning_rate: 0",
                "job.yaml:13: train.learning_rate: found 0, expected a number larger than 0"},
        Mistake{"learning_rate: 1e-3", "learning_rate: .nan",
                "job.yaml:13: train.learning_rate: found .nan, expected a number larger than 0"},
        Mistake{"learning_rate: 1e-3", "learning_rate: nan",
                "job.yaml:13: train.learning_rate: found nan, expected a number larger than 0"},
        Mistake{"learning_rate: 1e-3", "learning_rate: .inf",
                "job.yaml:13: train.learning_rate: found .inf, expected a number larger than 0"},
        Mistake{"learning_rate: 1e-3", "learning_rate: 1e999",
                "job.yaml:13: train.learning_rate: found 1e999, expected a number larger than 0 that fits "
                "double precision"},
        Mistake{"steps: 10", "steps: 10\n  weight_decay: 1e-999",
                "job.yaml:13: train.weight_decay: found 1e-999, expected a number of at least 0 that fits "
                "double precision"},
        Mistake{"steps: 10", "steps: 10\n  betas: [0.9, 1]",
                "job.yaml:13: train.betas[1]: found 1, expected a number of at least 0 and less than 1"},
        Mistake{"name: small", "name: small\nparallel: {head_groups: 0}",
                "job.yaml:2: parallel.head_groups: found 0, expected auto or an integer of at least 1"},
        Mistake{"name: small", "name: small\nparallel: {tile_rows: -1}",
                "job.yaml:2: parallel.tile_rows: found -1, expected auto, none or an integer of at least 1"},
        Mistake{"name: small", "name: small\nparallel: {head_groups: none}",
                "job.yaml:2: parallel.head_groups: found none, expected auto or an integer of at least 1"}));

INSTANTIATE_TEST_SUITE_P(
    Keys, JobFileMistakes,
    ::testing::Values(
        Mistake{"steps: 10", "steps: 10\n  learning_rte: 1",
                "job.yaml:13: train.learning_rte: unknown key, did you mean 'learning_rate'?"},
        Mistake{"name: small", "name: small\nmodl: 1",
                "job.yaml:2: modl: unknown key, did you mean 'model'?"},
        Mistake{"ffn: 96", "ffn: 96\n  micro_batch: 1",
                "job.yaml:8: model.micro_batch: unknown key, did you mean 'train.micro_batch'?"},
        Mistake{"name: small", "name: small\nowner: me",
                "job.yaml:2: owner: unknown key, expected one of name, model, data, train, parallel, "
                "checkpoint, max_restarts, priority, device, namespace"},
        Mistake{"name: small", "name: small\n<<: {a: 1}",
                "job.yaml:2: <<: unknown key, expected one of name, model, data, train, parallel, "
                "checkpoint, max_restarts, priority, device, namespace"},
        Mistake{"ffn: 96", "ffn: 96\n  layers: 3",
                "job.yaml:8: model.layers: given twice, expected once (first on line 4)"},
        Mistake{"learning_rate: 1e-3\n", "learning_rate: 1e-3\nname: other\n",
                "job.yaml:14: name: given twice, expected once (first on line 1)"},
        Mistake{"  steps: 10\n", "",
                "job.yaml:11: train.steps: missing, expected an integer of at least 1: optimizer steps"},
        Mistake{"name: small\n", "",
                "job.yaml:1: name: missing, expected a text: name shown to people; letters, digits, - . _"},
        Mistake{"data:\n  source: corpus.txt\n  sequence_length: 128\n", "",
                "job.yaml:1: data: missing, expected a section (source, sequence_length): what it reads"}));

INSTANTIATE_TEST_SUITE_P(
    CrossRules, JobFileMistakes,
    ::testing::Values(
        Mistake{"heads: 4", "heads: 4\n  kv_heads: 3",
                "job.yaml:7: model.kv_heads: found 3, expected a divisor of model.heads (4)"},
        Mistake{"heads: 4", "heads: 5",
                "job.yaml:6: model.heads: found 5, expected a divisor of model.hidden (64), or "
                "model.head_dim to be given"},
        Mistake{"hidden: 64", "hidden: 20",
                "job.yaml:2: model.head_dim: found 5, expected an even number: rotary positions turn pairs"},
        Mistake{"source: corpus.txt", "source: [a.bin, b.bin]",
                "job.yaml:2: model.vocab: missing, expected the vocabulary's size (data.tokenizer none does "
                "not tell it)"},
        Mistake{"source: corpus.txt", "source:\n    - a.txt\n    - b.bin",
                "job.yaml:11: data.source[1]: found b.bin, expected text files or folders (data.tokenizer is "
                "bytes)"},
        Mistake{"source: corpus.txt", "source: b.bin\n  tokenizer: bytes",
                "job.yaml:9: data.source[0]: found b.bin, expected text files or folders (data.tokenizer is "
                "bytes)"},
        Mistake{"name: small", "name: a b",
                "job.yaml:1: name: found \"a b\", expected 1 to 63 letters, digits, '-', '.' and '_', a "
                "letter or digit first"},
        Mistake{
            "steps: 10", "steps: 10\n  micro_batch: 2",
            "job.yaml:13: train.micro_batch: found 2, expected a divisor of train.sequences_per_step (1)"}));

TEST(JobFile, ReportsAllProblemsInTheOrderOfTheFile) {
  std::string text(kJob);
  text.replace(text.find("layers: 2"), 9, "layers: 0");
  text.replace(text.find("steps: 10"), 9, "steps: x");
  EXPECT_EQ(Wrong(text + "colour: red\n"),
            "job.yaml:4: model.layers: found 0, expected an integer of at least 1 and at most 10000\n"
            "job.yaml:12: train.steps: found x, expected an integer of at least 1\n"
            "job.yaml:14: colour: unknown key, expected one of name, model, data, train, parallel, "
            "checkpoint, max_restarts, priority, device, namespace");
}

TEST(JobFile, CutsAVeryLongListOfProblems) {
  std::string text(kJob);
  for (int i = 0; i < 60; ++i) {
    text += "unheard_of_" + std::to_string(i) + ": 1\n";
  }
  EXPECT_THAT(Wrong(text), ::testing::EndsWith("\nand 10 more problems"));
}

TEST(JobFile, CutsLongValuesAndKeys) {
  EXPECT_EQ(Wrong(JobWith("layers: 2", "layers: " + std::string(500, 'x'))),
            "job.yaml:4: model.layers: found " + std::string(60, 'x') +
                "..., expected an integer of at least 1 and at most 10000");
  EXPECT_THAT(Wrong(JobWith("layers: 2", std::string(500, 'x') + ": 2")),
              HasSubstr("job.yaml:4: model." + std::string(60, 'x') + "...: unknown key"));
}

struct Broken {
  std::string text, message;
};

class BrokenYaml : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenYaml, IsRefusedWithItsLine) { EXPECT_EQ(Wrong(GetParam().text), GetParam().message); }

INSTANTIATE_TEST_SUITE_P(
    JobFile, BrokenYaml,
    ::testing::Values(
        Broken{"", "job.yaml:1: found nothing, expected a section (name, model, data, train)"},
        Broken{"# nothing\n", "job.yaml:1: found nothing, expected a section (name, model, data, train)"},
        Broken{"- a\n", "job.yaml:1: found a list, expected a section (name, model, data, train)"},
        Broken{"job", "job.yaml:1: found job, expected a section (name, model, data, train)"},
        Broken{"name: a\n---\nname: b\n", "job.yaml:3: found a second document (---), expected one"},
        Broken{"name: a\n\tmodel: b\n",
               "job.yaml:2: not valid YAML at column 1: illegal tab when looking for indentation"},
        Broken{"name: [a\n", "job.yaml:2: not valid YAML at column 1: end of sequence flow not found"},
        Broken{"name: \"a\n \n", "job.yaml:2: not valid YAML at column 2: illegal EOF in scalar"},
        Broken{"a: &x 1\nb: *x\n",
               "job.yaml:1: found an anchor or alias (&x, *x), expected the value written out\n"
               "job.yaml:2: found an anchor or alias (&x, *x), expected the value written out"},
        Broken{"a: *x\n", "job.yaml:1: not valid YAML at column 4: the referenced anchor is not defined"},
        Broken{"a: !!int 1\n", "job.yaml:1: found a tag (tag:yaml.org,2002:int), expected the plain value"},
        Broken{"? [a]\n: b\n", "job.yaml:1: found a list as a key, expected a word"},
        Broken{std::string("name: a\nb\0c: d\n", 15),
               "job.yaml:2: found the byte 0x00, expected printable text"},
        Broken{"name: a\x04\nmodel: 1\n", "job.yaml:1: found the byte 0x04, expected printable text"},
        Broken{"name: a\nb: \xff\n", "job.yaml:2: found bytes that are not UTF-8, expected UTF-8 text"},
        Broken{"name: \xed\xa0\x80\n", "job.yaml:1: found bytes that are not UTF-8, expected UTF-8 text"},
        Broken{"name: \xc0\xaf\n", "job.yaml:1: found bytes that are not UTF-8, expected UTF-8 text"},
        Broken{std::string((1 << 20) + 1, '#'),
               "job.yaml: found a file of more than 1048576 bytes, expected a job file"}));

TEST(JobFile, RefusesEndlessNesting) {
  const std::string message =
      "job.yaml:1: lists and sections stand too deep inside each other, expected a job";
  for (const char* open : {"[", "{", "[{a: "}) {
    std::string text = "name: ";
    for (int i = 0; i < 50000; ++i) {
      text += open;
    }
    EXPECT_EQ(Wrong(text), message);
  }
}

}  // namespace
}  // namespace metp
