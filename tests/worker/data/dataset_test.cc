// Sequences over files: what they hold, in which order, and what is refused.

#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/proto/support/file_folder.h"
#include "tests/worker/data/job_over.h"

namespace metp {
namespace {

using test::Binary;
using test::FileFolder;
using test::JobOver;
using test::ReadSequence;
using test::Sequence;
using test::TokenJobOver;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::unique_ptr<Dataset> Opened(const v1::JobSpec& job) {
  absl::StatusOr<std::unique_ptr<Dataset>> dataset = Dataset::Open(job);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return dataset.ok() ? std::move(*dataset) : nullptr;
}

/// The stream's tokens [i s, (i+1) s) for the sequence whose first token is `first`: found by content, since
/// the order is a permutation.
std::vector<int32_t> FirstTokens(const Dataset& dataset, int64_t epoch) {
  std::vector<int32_t> firsts;
  for (int64_t k = 0; k < dataset.sequences(); ++k) {
    firsts.push_back(ReadSequence(dataset, epoch * dataset.sequences() + k, 0, 1).tokens[0]);
  }
  return firsts;
}

std::vector<uint16_t> Counting(size_t count) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  return tokens;
}

TEST(Dataset, FollowsEachFileWithTheEndOfDocument) {
  const FileFolder folder;
  const std::string a = folder.Write("a", "ab"), b = folder.Write("b", ""), c = folder.Write("c", "\xff!");
  const auto dataset = Opened(JobOver({a, b, c}, 6));
  EXPECT_EQ(dataset->tokens(), 7);
  EXPECT_EQ(dataset->sequences(), 1);
  const Sequence sequence = ReadSequence(*dataset, 0, 0, 6);
  EXPECT_THAT(sequence.tokens, ElementsAre('a', 'b', 256, 256, 255, '!'));
  EXPECT_THAT(sequence.targets, ElementsAre('b', 256, 256, 255, '!', 256));
}

TEST(Dataset, ReadsTokenFilesOfBothTypesAsOneStream) {
  const FileFolder folder;
  v1::JobSpec job = TokenJobOver(folder.Write("a.bin", Binary<uint16_t>({1, 500, 3})), 4, 501);
  job.mutable_data()->add_source(folder.Write("b.bin", Binary<uint16_t>({4, 5})));
  EXPECT_THAT(ReadSequence(*Opened(job), 0, 0, 4).tokens, ElementsAre(1, 500, 3, 4));
  EXPECT_THAT(ReadSequence(*Opened(job), 0, 0, 4).targets, ElementsAre(500, 3, 4, 5));
  const std::string wide = folder.Write("wide.bin", Binary<uint32_t>({70000, 2, 3}));
  const auto dataset = Opened(TokenJobOver(wide, 2, 70001, v1::DataSpec::TOKEN_TYPE_UINT32));
  EXPECT_THAT(ReadSequence(*dataset, 0, 0, 2).tokens, ElementsAre(70000, 2));
}

TEST(Dataset, CutsTheStreamIntoWholeSequencesWithTargetsOneFurtherOn) {
  const FileFolder folder;
  for (const size_t total : {13u, 14u, 15u, 16u, 17u}) {
    const auto dataset = Opened(TokenJobOver(folder.Write("a.bin", Binary(Counting(total))), 4, 100));
    ASSERT_EQ(dataset->sequences(), static_cast<int64_t>((total - 1) / 4)) << total;
    std::set<int32_t> firsts;
    for (int64_t k = 0; k < dataset->sequences(); ++k) {
      const Sequence sequence = ReadSequence(*dataset, k, 0, 4);
      const int32_t first = sequence.tokens[0];
      EXPECT_EQ(first % 4, 0);
      EXPECT_THAT(sequence.tokens, ElementsAre(first, first + 1, first + 2, first + 3));
      EXPECT_THAT(sequence.targets, ElementsAre(first + 1, first + 2, first + 3, first + 4));
      firsts.insert(first);
    }
    EXPECT_EQ(firsts.size(), (total - 1) / 4);
  }
}

TEST(Dataset, ReadsAnyPartOfASequenceAsTheWholeHoldsIt) {
  const FileFolder folder;
  std::vector<std::string> files;
  std::string stream;  // with '#' for the end of a document
  for (const std::string text : {"the", "", "q", "brown fox jumps", "over", "", "", "lazy dogs"}) {
    files.push_back(folder.Write("f" + std::to_string(files.size()), text));
    stream += text + "#";
  }
  const auto dataset = Opened(JobOver(files, static_cast<int32_t>(stream.size()) - 1));
  ASSERT_EQ(dataset->tokens(), static_cast<int64_t>(stream.size()));
  const auto token = [&](size_t i) { return stream[i] == '#' ? 256 : stream[i]; };
  for (size_t begin = 0; begin < stream.size(); ++begin) {
    for (size_t end = begin; end < stream.size(); ++end) {
      const Sequence part = ReadSequence(*dataset, 0, static_cast<int64_t>(begin), static_cast<int64_t>(end));
      for (size_t i = begin; i < end; ++i) {
        ASSERT_EQ(part.tokens[i - begin], token(i)) << begin << " " << end;
        ASSERT_EQ(part.targets[i - begin], token(i + 1)) << begin << " " << end;
      }
    }
  }
}

TEST(Dataset, VisitsEverySequenceOnceInEachEpoch) {
  const FileFolder folder;
  const auto dataset = Opened(TokenJobOver(folder.Write("a.bin", Binary(Counting(2 * 301 + 1))), 2, 1000));
  std::vector<int32_t> all(301);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<int32_t>(2 * i);
  }
  const std::vector<int32_t> first = FirstTokens(*dataset, 0), second = FirstTokens(*dataset, 1);
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(second, ::testing::UnorderedElementsAreArray(all));
  EXPECT_NE(first, all);
  EXPECT_NE(first, second);
}

TEST(Dataset, OrdersByTheSeedAlone) {
  const FileFolder folder;
  v1::JobSpec job = TokenJobOver(folder.Write("a.bin", Binary(Counting(603))), 2, 1000);
  const std::vector<int32_t> order = FirstTokens(*Opened(job), 3);
  job.mutable_train()->set_seed(9);
  job.mutable_parallel()->set_degree(4);
  EXPECT_EQ(FirstTokens(*Opened(job), 3), order);
  job.mutable_data()->set_seed(2);
  EXPECT_NE(FirstTokens(*Opened(job), 3), order);
}

TEST(Dataset, AnswersManyThreadsAtOnce) {
  const FileFolder folder;
  const auto dataset = Opened(TokenJobOver(folder.Write("a.bin", Binary(Counting(603))), 2, 1000));
  std::vector<std::vector<int32_t>> seen(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      for (const int64_t epoch : {t % 2, size_t{1}, size_t{0}, size_t{2}, size_t{1}}) {
        seen[t] = FirstTokens(*dataset, epoch);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<int32_t>& order : seen) {
    EXPECT_EQ(order, FirstTokens(*dataset, 1));
  }
}

TEST(DocumentStarts, StandAfterEachEndOfDocument) {
  const FileFolder folder;
  // a b E | c E | E | d e E
  const std::vector<std::string> files = {folder.Write("1", "ab"), folder.Write("2", "c"),
                                          folder.Write("3", ""), folder.Write("4", "de")};
  EXPECT_THAT(Opened(JobOver(files, 8))->DocumentStarts(0), ElementsAre(0, 3, 5, 6));
  const auto halves = Opened(JobOver(files, 3));  // a b E | c E E
  for (int64_t k = 0; k < 2; ++k) {
    if (ReadSequence(*halves, k, 0, 1).tokens[0] == 'a') {
      EXPECT_THAT(halves->DocumentStarts(k), ElementsAre(0));
    } else {
      EXPECT_THAT(halves->DocumentStarts(k), ElementsAre(0, 2));  // c starts just where the sequence does
    }
  }
}

TEST(DocumentStarts, AgreeWithTheTokensForEverySequenceLength) {
  const FileFolder folder;
  const std::vector<uint16_t> tokens = {9, 1, 9, 9, 2, 3, 4, 9, 5, 6, 9, 9, 9, 7, 8, 1};
  const std::string first =
      folder.Write("a.bin", Binary(std::vector<uint16_t>(tokens.begin(), tokens.begin() + 7)));
  const std::string second =
      folder.Write("b.bin", Binary(std::vector<uint16_t>(tokens.begin() + 7, tokens.end())));
  for (int32_t length = 1; length < 16; ++length) {
    v1::JobSpec job = TokenJobOver(first, length, 10);
    job.mutable_data()->add_source(second);
    job.mutable_data()->set_end_of_document(9);
    const auto dataset = Opened(job);
    for (int64_t k = 0; k < dataset->sequences(); ++k) {
      const Sequence sequence = ReadSequence(*dataset, k, 0, length);
      std::vector<int64_t> expected = {0};
      for (int64_t i = 1; i < length; ++i) {
        if (sequence.tokens[static_cast<size_t>(i - 1)] == 9) {
          expected.push_back(i);
        }
      }
      EXPECT_THAT(dataset->DocumentStarts(k), ElementsAreArray(expected)) << length << " " << k;
    }
  }
}

TEST(DocumentStarts, AreOneForTokenFilesWithoutAnEndOfDocument) {
  const FileFolder folder;
  const auto dataset = Opened(TokenJobOver(folder.Write("a.bin", Binary(Counting(300))), 299, 300));
  EXPECT_THAT(dataset->DocumentStarts(0), ElementsAre(0));
}

TEST(DatasetOpen, RefusesAStreamShorterThanOneSequence) {
  const FileFolder folder;
  const std::string text = folder.Write("a", std::string(811, 'x'));
  EXPECT_EQ(
      Dataset::Open(JobOver({text}, 4096)).status(),
      absl::InvalidArgumentError("found 812 tokens, expected at least 4097 (data.sequence_length + 1)"));
  EXPECT_TRUE(Dataset::Open(JobOver({text}, 811)).ok());
  EXPECT_FALSE(Dataset::Open(JobOver({text}, 812)).ok());
}

TEST(DatasetOpen, NamesTheFirstTokenBeyondTheVocabulary) {
  const FileFolder folder;
  std::vector<uint32_t> tokens(200000, 5);
  tokens[150012] = 70000;
  tokens[150013] = 4000000000u;
  v1::JobSpec job = TokenJobOver(folder.Write("good.bin", Binary<uint32_t>({50256, 1})), 2, 50257,
                                 v1::DataSpec::TOKEN_TYPE_UINT32);
  const std::string path = folder.Write("corpus.bin", Binary(tokens));
  job.mutable_data()->add_source(path);
  EXPECT_EQ(
      Dataset::Open(job).status(),
      absl::InvalidArgumentError(path + ": token 70000 at position 150012 is beyond the vocabulary of 50257 "
                                        "(model.vocab)"));
  job.mutable_model()->set_vocab(70001);
  EXPECT_EQ(Dataset::Open(job).status().message(),
            path + ": token 4000000000 at position 150013 is beyond the vocabulary of 70001 (model.vocab)");
}

TEST(DatasetOpen, ChecksTheVocabularyOfSmallTypesToo) {
  const FileFolder folder;
  const std::string path = folder.Write("a.bin", Binary<uint16_t>({1, 2, 65535}));
  EXPECT_EQ(Dataset::Open(TokenJobOver(path, 2, 65535)).status().message(),
            path + ": token 65535 at position 2 is beyond the vocabulary of 65535 (model.vocab)");
  EXPECT_TRUE(Dataset::Open(TokenJobOver(path, 2, 65536)).ok());
  v1::JobSpec bytes = JobOver({folder.Write("text", "abc")}, 2);
  bytes.mutable_model()->set_vocab(256);
  EXPECT_EQ(Dataset::Open(bytes).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DatasetOpen, RefusesATornTokenFile) {
  const FileFolder folder;
  const std::string path = folder.Write("a.bin", "1234567");
  EXPECT_EQ(Dataset::Open(TokenJobOver(path, 2, 100)).status(),
            absl::InvalidArgumentError(path + ": found 7 bytes, expected a multiple of 2 (data.token_type)"));
  EXPECT_EQ(Dataset::Open(TokenJobOver(path, 2, 100, v1::DataSpec::TOKEN_TYPE_UINT32)).status().message(),
            path + ": found 7 bytes, expected a multiple of 4 (data.token_type)");
}

TEST(DatasetOpen, RefusesAFolderAsATokenFile) {
  const FileFolder folder;
  folder.Write("x.bin/a", "abcd");
  const std::string path = folder.path() / "x.bin";
  EXPECT_EQ(Dataset::Open(TokenJobOver(path, 1, 100)).status(),
            absl::InvalidArgumentError(path + ": found a folder, expected a regular file"));
}

TEST(DatasetOpen, AnswersNotFoundForAMissingSource) {
  EXPECT_EQ(Dataset::Open(JobOver({"/nowhere/x"}, 2)).status(),
            absl::NotFoundError("/nowhere/x: no such file or folder"));
  EXPECT_EQ(Dataset::Open(TokenJobOver("/nowhere/x.bin", 2, 10)).status(),
            absl::NotFoundError("/nowhere/x.bin: cannot be read: No such file or directory"));
}

}  // namespace
}  // namespace metp
